"""Files of the chart that are made of others, and what makes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import values_page
from charts.__main__ import CHART, KEEP, main
from charts.values_page import Value, ValuesFault, described, page, read
from outrider import __version__

ROOT = Path(__file__).resolve().parents[2]
CHART_YAML = yaml.safe_load((CHART / "Chart.yaml").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())

TEXT = """\
# Values of a chart.

image:
  # Where it comes from,
  # in two lines.
  tag: ""
# Labels.
labels:
  grafana: "1"
"""
TYPES = {
    "properties": {
        "image": {"properties": {"tag": {"type": "string"}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    }
}


class TestFiles:
    def test_what_is_committed_is_what_is_made(self, tmp_path: Path) -> None:
        assert main([str(tmp_path)]) == 0
        made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
        assert len(made) == 4
        for path in made:
            assert (tmp_path / path).read_text() == (ROOT / path).read_text(), f"{path}: run make generate"

    def test_the_chart_has_the_plain_definition_and_keeps_it(self) -> None:
        plain = (ROOT / "crds" / "serving.outrider.dev_speculativeinferenceservices.yaml").read_text()
        assert (CHART / "files" / "crd.yaml").read_text().replace(KEEP, "") == plain
        definition = yaml.safe_load((CHART / "files" / "crd.yaml").read_text())
        assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}

    def test_helm_is_not_given_a_definition_that_it_would_never_upgrade(self) -> None:
        assert not (CHART / "crds").exists()

    def test_the_rules_for_kubectl_are_those_of_the_chart(self) -> None:
        rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
        documents = list(yaml.safe_load_all((ROOT / "deploy" / "rbac.yaml").read_text()))
        found = {one["kind"]: one["rules"] for one in documents if "rules" in one}
        assert found == {"ClusterRole": [*rules["namespaced"], *rules["cluster"]], "Role": rules["own"]}

    def test_nothing_is_allowed_that_would_let_the_operator_allow_itself_more(self) -> None:
        rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
        every = [rule for part in ("namespaced", "own", "cluster", "named") for rule in rules[part]]
        assert all("*" not in rule[part] for rule in every for part in ("apiGroups", "resources", "verbs"))
        assert not {"rbac.authorization.k8s.io"} & {group for rule in every for group in rule["apiGroups"]}
        (secrets,) = (rule for rule in every if "secrets" in rule["resources"])
        assert secrets["verbs"] == ["get", "create"]
        assert all(set(rule["verbs"]) <= {"get", "list", "watch"} for rule in [*rules["cluster"], *rules["named"]])


class TestValuesPage:
    def test_a_comment_above_a_value_is_its_description(self) -> None:
        assert read(TEXT) == [
            Value(("image", "tag"), "", "Where it comes from, in two lines."),
            Value(("labels",), {"grafana": "1"}, "Labels."),
        ]

    def test_a_value_is_a_row_of_the_page(self) -> None:
        assert page(read(TEXT)).endswith(
            "| value | default | meaning |\n|---|---|---|\n"
            '| `image.tag` | `""` | Where it comes from, in two lines. |\n'
            '| `labels` | `{"grafana": "1"}` | Labels. |\n'
        )

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            pytest.param("a: 1\n", "values.yaml line 1: a has no comment above it", id="none"),
            pytest.param("# Of the block.\n\na: 1\n", "line 3: a has no comment", id="an empty line between"),
            pytest.param("b:\n  a: 1\n", "line 2: b.a has no comment", id="within a block"),
            pytest.param("b: {}\n", "line 1: b has no comment", id="an empty block"),
        ],
    )
    def test_a_value_without_one_is_refused(self, text: str, said: str) -> None:
        with pytest.raises(ValuesFault, match=said):
            read(text)

    def test_the_schema_gets_the_same_words(self) -> None:
        found = described(TYPES, read(TEXT))["properties"]
        assert found["image"]["properties"]["tag"] == {
            "type": "string",
            "description": "Where it comes from, in two lines.",
        }
        assert found["labels"]["description"] == "Labels."

    def test_a_value_without_a_type_is_refused(self) -> None:
        with pytest.raises(ValuesFault, match=r"values.schema.json has no image.pull: add its type"):
            described(TYPES, [*read(TEXT), Value(("image", "pull"), "", "When.")])

    def test_a_type_without_a_value_is_refused(self) -> None:
        with pytest.raises(ValuesFault, match=r"values.yaml has no image.tag: add it with its default"):
            described(TYPES, read("# Labels.\nlabels: {}\n"))


def objects(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object of a schema that has properties, by its path."""
    if "properties" in schema:
        yield path, schema
        for name, below in schema["properties"].items():
            yield from objects(below, f"{path}.{name}")


class TestSchema:
    def test_it_is_closed_everywhere(self) -> None:
        found = dict(objects(SCHEMA))
        assert len(found) > 10
        assert [path for path, one in found.items() if one.get("additionalProperties") is not False] == []

    def test_every_value_says_what_it_is(self) -> None:
        values = read((CHART / "values.yaml").read_text())
        assert len(values) > 50
        assert all(one.description.endswith((".", ")")) for one in values)

    def test_what_a_parent_chart_shares_is_let_through(self) -> None:
        """Helm gives every part of a chart the key `global`."""
        assert set(SCHEMA["properties"]) - set(VALUES) == values_page.NOT_SHOWN == {"global"}


class TestChartYaml:
    def test_both_versions_are_the_projects(self) -> None:
        assert (CHART_YAML["version"], CHART_YAML["appVersion"]) == (__version__, __version__)

    def test_what_artifact_hub_reads_as_yaml_is_yaml(self) -> None:
        annotations = CHART_YAML["annotations"]
        assert all(isinstance(text, str) for text in annotations.values())
        (definition,) = yaml.safe_load(annotations["artifacthub.io/crds"])
        plain = yaml.safe_load((CHART / "files" / "crd.yaml").read_text())
        assert definition["name"] == plain["metadata"]["name"]
        assert definition["kind"] == plain["spec"]["names"]["kind"]
        assert definition["version"] in {one["name"] for one in plain["spec"]["versions"]}
        kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}
        assert {one["kind"] for one in yaml.safe_load(annotations["artifacthub.io/changes"])} <= kinds
        assert all(one["url"] for one in yaml.safe_load(annotations["artifacthub.io/recommendations"]))

    def test_its_example_is_a_resource_that_we_would_take(self) -> None:
        from outrider.api.resource import parse

        (example,) = yaml.safe_load(CHART_YAML["annotations"]["artifacthub.io/crdsExamples"])
        example["metadata"] |= {"namespace": "ml", "uid": "u", "generation": 1}
        assert parse(example).name == "chat"
