"""Resources out of the CRD's own schema: an admitted one, with a few fields set to values that fit or do not.

Driven by the schema, so a field that is added is tried without a line here. Most values fit, or nothing would ever get
past the first refusal; what does not fit is of every kind that a hand or a template gets wrong.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from outrider.api.crd import custom_resource_definition
from tests.unit.api.bodies import ADMITTED, EXAMPLES, Body, changed, example

Schema = Mapping[str, Any]
Path = tuple[str, ...]

MOST_EDITS = 5
_LONGEST_TEXT = 12
_LARGEST_INTEGER = 2**31 - 1

_NASTY = (
    "", " ", "\n", "a" * 600, "ü", "\u202e", "it's \"quoted\" {x}", "$(HOME)", "$$(HOME)", "../../etc/passwd", "/",
    "true", "null", "0x10", "1e9", "-1", "--api-key=x", "-O3", "s3://bucket/model", "http://169.254.169.254/", "a b",
    "{}",
)  # fmt: skip


def spec_schema() -> Schema:
    """The structural schema of the spec."""
    version = custom_resource_definition()["spec"]["versions"][0]
    schema: Schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def fields(schema: Schema, path: Path = ("spec",)) -> Iterator[tuple[Path, Schema]]:
    """Every field that is reached through objects alone, with its schema."""
    for name, field in schema.get("properties", {}).items():
        yield (*path, name), field
        yield from fields(field, (*path, name))


_PASSED_THROUGH: Mapping[str, Sequence[Any]] = {
    "affinity": [{"podAntiAffinity": {}}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "allowFrom": [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
    "extraConfig": [{"backends": ["UCX"], "nested": {"deep": [1, None, "x"]}}],
    "spec": [{"dnsPolicy": "ClusterFirst"}, {"volumes": [{"name": "more", "emptyDir": {}}]}, {"hostNetwork": True}],
}
"""What Kubernetes itself judges: here it is right, since what it says of the rest is shown in status."""


_WORDS: Mapping[str, Sequence[str]] = {
    "quantization": ["fp8", "awq", "compressed-tensors"],
    "kvCacheDtype": ["auto", "fp8"],
    "version": ["0.33.0", "0.29.0", "0.11.0"],
}
"""What the schema cannot tell from any other word."""


def fitting(schema: Schema, name: str = "") -> SearchStrategy[Any]:
    """Values that the schema admits for the field of this name; rules over several fields may still refuse them."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return st.sampled_from(_PASSED_THROUGH[name])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.sampled_from([1, 4, "8", "500m", "64Gi", "1.5Gi", "16G"])
    kind = schema.get("type")
    if kind == "integer":
        low, high = schema.get("minimum", 0), schema.get("maximum", _LARGEST_INTEGER)
        return st.one_of(st.sampled_from([low, high]), st.integers(low, min(high, low + 64)))
    if kind == "boolean":
        return st.booleans()
    if kind == "string":
        return st.one_of(st.sampled_from(_WORDS[name]), _text(schema)) if name in _WORDS else _text(schema)
    if kind == "array":
        return _list(schema, name)
    if "additionalProperties" in schema:
        return st.dictionaries(st.sampled_from(["team", "tier", "x.y/z"]), fitting(schema["additionalProperties"]))
    return _object(schema)


def broken(schema: Schema) -> SearchStrategy[Any]:
    """Values of the wrong type, out of range, or with a field that nobody knows."""
    wrong: list[Any] = [None, True, 0, -1, 1.5, 2**40, "text", [], {}, [[]], {"typo": 1}, *_NASTY]
    if "maximum" in schema:
        wrong.append(schema["maximum"] + 1)
    if "minimum" in schema:
        wrong.append(schema["minimum"] - 1)
    return st.sampled_from(wrong)


def edits() -> SearchStrategy[tuple[Path, Any]]:
    """One field and a value for it; an absent value removes the field."""
    known = list(fields(spec_schema()))

    def values(choice: tuple[Path, Schema]) -> SearchStrategy[tuple[Path, Any]]:
        path, schema = choice
        # One in eight does not fit, so that most resources with a few edits still get past the schema.
        value = st.integers(0, 7).flatmap(lambda lot: broken(schema) if lot == 0 else fitting(schema, path[-1]))
        return st.tuples(st.just(path), value)

    return st.sampled_from(known).flatmap(values)


def bodies() -> SearchStrategy[Body]:
    """Resources as a user would send them."""
    examples = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in EXAMPLES]
    admitted = [changed(example(), changes) for changes in ADMITTED.values()]
    return st.builds(_edited, st.sampled_from([*examples, *admitted]), st.lists(edits(), max_size=MOST_EDITS))


_MIRROR = {"hub": {"endpoint": "https://hub.example.com"}}
_BESIDE_RULES: Mapping[str, Sequence[Any]] = {
    "model.source": (
        None,
        {},
        {"hub": {}},
        _MIRROR,
        {"volume": {"claimName": "m"}},
        _MIRROR | {"volume": {"claimName": "m"}},
    ),
    "speculation.method": ("eagle3", "ngram", "suffix", "draft_model", "mtp", "dspark"),
    "speculation.draft": (
        None,
        {"id": "org/drafter"},
        {"id": "org/drafter", "tensorParallelSize": 2},
        {"id": "org/drafter", "tensorParallelSize": 4, "source": {"hub": {}}},
        {"id": "org/drafter", "source": _MIRROR},
    ),
    "speculation.maxSpeculativeTokens": (1, 2, 5),
    "speculation.tuning.mode": (None, "Fixed", "Off"),
    "speculation.tuning.initialSpeculativeTokens": (None, 0, 2, 5),
    "speculation.tuning.minSpeculativeTokens": (None, 0, 2),
    "speculation.ngram": (None, {}, {"promptLookupMin": 3}, {"promptLookupMin": 3, "promptLookupMax": 2}),
    "speculation.heterogeneousVocab": (None, None, False, True),
    "speculation.draftSampling": (None, "Greedy", "Probabilistic"),
    "speculation.rejectionSampling": (None, {"method": "Fly"}, {"method": "Fly", "flyWindowSize": 2}),
    "resources.gpus": (None, 1, 2, 4, 8, 12),
    "resources.gpuResource": (None, "amd.com/gpu"),
    "resources.resourceClaims": (None, [], [{"name": "gpus", "resourceClaimTemplateName": "h100"}]),
    "parallelism.tensor": (None, 1, 2, 4, 8),
    "parallelism.pipeline": (None, 1, 2, 3),
    "parallelism.data": (None, 1, 2, 4),
    "rollout.strategy": (None, "RollingUpdate", "Recreate"),
    "rollout.maxSurge": (None, 0, 1),
    "rollout.maxUnavailable": (None, 0, 1),
    "storage.modelCache": (None, {}, {"claimName": "c"}, {"sizeLimit": 5}, {"claimName": "c", "sizeLimit": "5Gi"}),
    "drain.terminationGraceSeconds": (None, 85, 86),
    "drain.preStopSeconds": (None, 0, 20),
}
"""Values that their own types admit, so that nothing but rules can refuse them, with our sentences."""


def beside_rules() -> SearchStrategy[Body]:
    """The minimal example with a few blocks of the spec that rules look at; what is None is left out."""
    blocks = sorted({path.split(".")[0] for path in _BESIDE_RULES})
    chosen = st.lists(st.sampled_from(blocks), min_size=1, max_size=3, unique=True)
    return chosen.flatmap(
        lambda names: st.fixed_dictionaries(
            {
                f"spec.{path}": st.sampled_from(values)
                for path, values in _BESIDE_RULES.items()
                if path.split(".")[0] in names
            }
        )
    ).map(lambda changes: changed(example(), changes))


def _edited(body: Body, changes: Sequence[tuple[Path, Any]]) -> Body:
    result = copy.deepcopy(body)
    for path, value in changes:
        place = result
        for name in path[:-1]:
            if not isinstance(place.get(name), dict):
                place[name] = {}
            place = place[name]
        place[path[-1]] = copy.deepcopy(value)
    return result


def _list(schema: Schema, name: str) -> SearchStrategy[list[Any]]:
    least = schema.get("minItems", 0)
    raw = "x-kubernetes-preserve-unknown-fields" in schema["items"]
    return st.lists(
        fitting(schema["items"], name),
        min_size=least,
        max_size=min(schema.get("maxItems", 3), least + 2),
        unique_by=repr if raw else None,  # Kubernetes takes none of these twice, and it is not ours to say so
    )


def _text(schema: Schema) -> SearchStrategy[str]:
    longest = min(schema.get("maxLength", _LONGEST_TEXT), _LONGEST_TEXT)
    if "pattern" in schema:
        return st.from_regex(schema["pattern"].replace("$", r"\Z"), fullmatch=True).filter(
            lambda text: schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text))
        )
    plain = st.text("abcXYZ019-_./ ", min_size=schema.get("minLength", 0), max_size=longest)
    nasty = st.sampled_from([text for text in _NASTY if schema.get("minLength", 0) <= len(text) <= longest])
    return st.one_of(plain, nasty)


def _object(schema: Schema) -> SearchStrategy[dict[str, Any]]:
    required = set(schema.get("required", ()))
    values = {name: fitting(field, name) for name, field in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: value for name, value in values.items() if name in required},
        optional={name: value for name, value in values.items() if name not in required},
    )
