"""Faults of a resource's form, each with the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from outrider.api import API_VERSION, KIND
from outrider.api.faults import in_words, path_of
from outrider.api.resource import Spec, SpeculativeInferenceService
from outrider.cli.preflight_outcome import Verdict

NEAR = 0.7
"""Likeness of two names, 0 to 1, from which one may be meant by the other."""
NEARBY_BONUS = 0.1
"""What a field of the same block is worth against one of another."""


MEANT = {
    "perbatchsize": "spec.speculation.tuning.schedule",
    "numspeculativetokensperbatchsize": "spec.speculation.tuning.schedule",
    "tokens": "spec.speculation.maxSpeculativeTokens",
    "numspeculativetokens": "spec.speculation.maxSpeculativeTokens",
    "speculativetokens": "spec.speculation.maxSpeculativeTokens",
    "drafttp": "spec.speculation.draft.tensorParallelSize",
    "tp": "spec.parallelism.tensor",
    "draftmodel": "spec.speculation.draft.id",
    "maxdraftlen": "spec.speculation.draft.maxLength",
    "replicas": "spec.autoscaling.minReplicas",
    "graceperiodseconds": "spec.drain.terminationGraceSeconds",
}
"""Names that other tools and vLLM itself use, without dashes and underscores, and the field that stands for each."""


def faults(body: Mapping[str, Any]) -> list[Verdict]:
    """Everything that is wrong with the form, in the sentences of the operator; unknown fields get a hint."""
    if body.get("kind", KIND) != KIND:
        return [Verdict("refused", f"kind is {body['kind']!r}, not {KIND}", "kind", "WrongKind")]
    if body.get("apiVersion") != API_VERSION:
        given = f"{body['apiVersion']!r}, which the API server does not know" if body.get("apiVersion") else "missing"
        return [Verdict("refused", f"apiVersion is {given}: write {API_VERSION}", "apiVersion", "WrongKind")]
    try:
        resource = SpeculativeInferenceService.model_validate(body)
    except ValidationError as error:
        return [_fault(dict(fault)) for fault in error.errors(include_url=False)]
    return [
        Verdict("refused", rule.message, "metadata.name", "InvalidName")
        for rule in resource.rules
        if not rule.holds(resource)
    ]


def _fault(fault: Mapping[str, Any]) -> Verdict:
    path = path_of(fault)
    message = f"{path}: {in_words(fault)}"
    if fault["type"] == "extra_forbidden":
        meant = nearest(path)
        message = f"{path}: there is no such field" + (f"; did you mean {meant}?" if meant else "; remove it")
    return Verdict("refused", message, path, "InvalidSpec")


def nearest(path: str) -> str | None:
    """The field whose name is most like an unknown one; one of the same block before one of another.

    Names of vLLM's own settings are compared without underscores, so that ``ngram_prompt_lookup_max`` finds
    ``spec.speculation.ngram.promptLookupMax``.
    """
    parent, _, wrong = path.rpartition(".")
    if _plain(wrong) in MEANT:
        return MEANT[_plain(wrong)]
    best, meant = NEAR, None
    for candidate in fields():
        block, _, name = candidate.rpartition(".")
        likeness = max(_likeness(wrong, name), _likeness(wrong, block.rpartition(".")[2] + name))
        likeness += NEARBY_BONUS if block == parent else NEARBY_BONUS / 2 if block.startswith(parent) else 0.0
        if likeness > best:
            best, meant = likeness, candidate
    return meant


def _likeness(one: str, other: str) -> float:
    one, other = _plain(one), _plain(other)
    matcher = SequenceMatcher(None, one, other)
    # The quick bound is never too low, and spares most of the work.
    likeness = matcher.ratio() if matcher.quick_ratio() > NEAR - NEARBY_BONUS else 0.0
    return max(likeness, 0.8) if len(one) > 2 and other.startswith(one) else likeness


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


@cache
def fields() -> tuple[str, ...]:
    """Paths of all fields of the spec, lists by their name alone."""
    return tuple(_fields(Spec, "spec"))


def _fields(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        below = f"{path}.{field.alias or name}"
        yield below
        for inner in _models(field.annotation):
            yield from _fields(inner, below)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation, however deep in unions and lists."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
