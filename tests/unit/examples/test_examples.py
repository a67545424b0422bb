"""The examples as a whole: what each file promises about itself and about the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.api.defaults import resolve
from outrider.api.resource import parse
from tests.unit.api.bodies import EXAMPLES, ROOT

FOLDER = ROOT / "examples"
FILES = sorted(FOLDER.rglob("*.yaml"))


def body(name: str) -> dict[str, Any]:
    """A file below the examples."""
    read: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return read


def intent(path: Path) -> str:
    """The comment that a file opens with, as one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]
    return " ".join(line.removeprefix("#").strip() for line in comment)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_says_for_whom_it_is_and_what_to_look_at(path: Path) -> None:
    text = intent(path)
    assert re.search(r"\bstatus\.|`kubectl |\bcolumns?\b", text), "nothing to look at once it runs"
    assert len(text) > 200


def test_all_can_be_applied_together() -> None:
    names = [body(str(path.relative_to(FOLDER)))["metadata"]["name"] for path in EXAMPLES]
    assert len(set(names)) == len(names)


def test_the_table_names_every_file_once() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[([^]]+)\]\(([^)]+)\)", text, flags=re.MULTILINE)
    assert all(shown == link for shown, link in rows)
    assert sorted(link for _, link in rows) == sorted(str(path.relative_to(FOLDER)) for path in FILES)


@pytest.mark.parametrize("path", [FOLDER / "README.md", *FILES], ids=lambda path: str(path.relative_to(FOLDER)))
def test_files_that_are_named_exist(path: Path) -> None:
    text = intent(path) if path.suffix == ".yaml" else path.read_text(encoding="utf-8")
    named = {name for name in re.findall(r"[\w./-]+\.(?:yaml|md)\b", text) if not name.startswith("http")}
    places = (ROOT, FOLDER, path.parent)
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_conditions_that_are_named_exist(path: Path) -> None:
    pages = (ROOT / "docs" / "reference" / "conditions.md").read_text(encoding="utf-8")
    named = re.findall(r"\bconditions? ([A-Z][A-Za-z]+)", intent(path))
    assert set(named) <= set(re.findall(r"^## (\w+)$", pages, flags=re.MULTILINE))


def test_the_canary_is_the_stable_service_with_another_ceiling() -> None:
    stable, canary = body("04-two-gpus-quantised-pair.yaml")["spec"], body("05-canary.yaml")["spec"]
    assert stable.pop("autoscaling") != canary.pop("autoscaling")
    ceilings = [spec["speculation"].pop("maxSpeculativeTokens") for spec in (stable, canary)]
    assert ceilings == [5, 2]
    assert canary == stable


def test_the_route_splits_between_the_two_services_under_one_name() -> None:
    (rule,) = body("beside/05-canary.route.yaml")["spec"]["rules"]
    services = [parse(body(name)) for name in ("04-two-gpus-quantised-pair.yaml", "05-canary.yaml")]
    assert [backend["name"] for backend in rule["backendRefs"]] == [service.name for service in services]
    assert sum(backend["weight"] for backend in rule["backendRefs"]) == 100
    assert len({resolve(service.spec).served_name for service in services}) == 1


def test_the_other_autoscaler_finds_a_deployment_whose_replicas_nobody_sets() -> None:
    service = parse(body("09-another-autoscaler.yaml"))
    scaler = body("beside/09-another-autoscaler.hpa.yaml")["spec"]
    settings = resolve(service.spec)
    assert (scaler["scaleTargetRef"]["kind"], scaler["scaleTargetRef"]["name"]) == ("Deployment", service.name)
    assert (settings.scaler, settings.fixed_replicas) == ("External", None)
    assert (settings.min_replicas, settings.max_replicas) == (scaler["minReplicas"], scaler["maxReplicas"])


def test_tiers_differ_in_what_they_are_named_for() -> None:
    cards = {
        path.stem: parse(yaml.safe_load(path.read_text(encoding="utf-8"))).spec
        for path in sorted((FOLDER / "tiers").glob("*.yaml"))
    }
    gpus = {name: resolve(spec).gpus * resolve(spec).max_replicas for name, spec in cards.items()}
    assert gpus["start-up"] < gpus["mid-market"] < gpus["enterprise"]
