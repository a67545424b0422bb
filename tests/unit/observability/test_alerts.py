"""Alerts and their runbook: a page each, and nothing in them that misleads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from outrider.observability.alerts import ALERTS, RUNBOOKS, Alert, rules

ROOT = Path(__file__).parents[3]
PAGES = ROOT / RUNBOOKS
HEADINGS = ["Meaning", "Impact", "Look", "Causes", "Remedies"]
every_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


def test_names_are_unique_and_tell_whose_they_are() -> None:
    names = [alert.name for alert in ALERTS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"Outrider[A-Z][A-Za-z]+", name) for name in names)


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} - {"README"} == {alert.name for alert in ALERTS}


def test_the_list_of_pages_is_whole() -> None:
    listed = re.findall(r"\[(\w+)\]\(\1\.md\)", (PAGES / "README.md").read_text())
    assert listed == [alert.name for alert in ALERTS]


@every_alert
def test_its_page_says_what_it_means_what_it_does_how_to_look_why_and_what_to_do(alert: Alert) -> None:
    text = (PAGES / f"{alert.name}.md").read_text()
    assert text.startswith(f"# {alert.name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert "```" in text.split("## Look")[1].split("## Causes")[0], "how to look is a command"
    assert f"Severity: {alert.severity}" in text


@every_alert
def test_its_page_names_the_bounds_that_the_rule_has(alert: Alert) -> None:
    text = (PAGES / f"{alert.name}.md").read_text()
    held = {"0m": "At once"}.get(alert.held, f"For {alert.held.removesuffix('m')} minutes")
    assert held in text


@every_alert
def test_it_tells_a_person_what_is_so(alert: Alert) -> None:
    assert alert.severity in ("critical", "warning")
    assert alert.summary.endswith(".")
    assert alert.description.endswith((".", ")"))
    assert "$value" in alert.description or '| label "reason"' in alert.description
    assert alert.rule()["annotations"]["runbook_url"] == f"{RUNBOOKS}{alert.name}.md"


def field(path: str) -> bool:
    """Whether the resource has a field ``spec.a.b``."""
    (crd,) = (ROOT / "crds").glob("*.yaml")
    found = yaml.safe_load(crd.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path.split("."):
        found = found.get("properties", {}).get(name)
        if found is None:
            return False
    return True


@every_alert
def test_its_page_names_fields_that_the_resource_has_and_pages_that_exist(alert: Alert) -> None:
    text = (PAGES / f"{alert.name}.md").read_text()
    named = set(re.findall(r"`(spec\.[A-Za-z.]+)", text))
    assert [path for path in named if not field(path)] == []
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (PAGES / target).exists(), target


def test_a_field_that_is_not_there_is_noticed() -> None:
    assert field("spec.autoscaling.maxReplicas")
    assert not field("spec.autoscaling.mostReplicas")


def test_rules_of_one_name_are_one_group() -> None:
    groups = rules()["groups"]
    assert [group["name"] for group in groups] == ["outrider"]
    assert len(groups[0]["rules"]) == len(ALERTS)
