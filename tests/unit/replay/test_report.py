"""The whole way from a resource to the document and the page: deterministic, of a stable form, self-contained."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from outrider.replay import html, page, report, runner
from outrider.replay.experiment import Experiment
from outrider.replay.load import AcceptanceClass, Load, Shift
from outrider.replay.policies import POLICIES
from outrider.replay.virtual import SAMPLE, read_manifest

LOAD = Load(
    "azure-conversation", 2.0, 60.0, (AcceptanceClass("chat", 1.0, (0.8, 0.6)),), (Shift(30.0, (0.3, 0.1)),), seed=3
)
POLICY_NAMES = ["k1", "outrider"]


def experiment(**changes: Any) -> Experiment:
    manifest = read_manifest(SAMPLE)
    manifest["spec"]["model"]["id"] = "chat-</script>-&"
    return replace(Experiment(manifest, LOAD), **changes)


def replayed(jobs: int = 1, **changes: Any) -> dict[str, Any]:
    trial = experiment(**changes)
    return report.document(trial, runner.run_all(trial, POLICY_NAMES, jobs, lambda _name, _share: None))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return replayed()


def test_the_same_inputs_give_the_same_document_in_any_number_of_processes(document: dict[str, Any]) -> None:
    assert json.dumps(replayed(jobs=2)) == json.dumps(document)


def test_another_seed_gives_another(document: dict[str, Any]) -> None:
    other = replayed(load=replace(LOAD, seed=4))
    assert other["policies"][0]["totals"] != document["policies"][0]["totals"]


def test_the_form_is_that_of_the_schema(document: dict[str, Any]) -> None:
    assert document["schema"] == "outrider.simulate/v1"
    assert list(document) == [
        "schema", "outrider", "inputs", "edges_s", "load", "policies", "losses", "notes",
    ]  # fmt: skip
    intervals = len(document["edges_s"]) - 1
    for policy in document["policies"]:
        assert policy["description"] == POLICIES[policy["name"]]
        assert {name: len(values) for name, values in policy["timeline"].items()} == dict.fromkeys(
            [
                "goodput_tps", "tpot_p50_s", "tpot_p95_s", "ttft_p95_s", "speculative_tokens", "batch", "waiting",
                "replicas", "target", "behind_tps",
            ],
            intervals,
        )  # fmt: skip
        assert 0.0 < policy["totals"]["goodput_tps"] <= policy["totals"]["tokens_tps"]
    assert [one["name"] for one in document["losses"]] == POLICY_NAMES
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_a_fixed_k_is_seen_as_such_and_outrider_says_why_it_moves(document: dict[str, Any]) -> None:
    fixed, ours = document["policies"]
    assert set(fixed["timeline"]["speculative_tokens"]) <= {1.0, None}
    assert fixed["decisions"] == []
    assert ours["decisions"]
    assert all(one["reason"] for one in ours["decisions"])


def test_with_an_autoscaler_every_policy_has_a_target_and_replicas_within_the_bounds() -> None:
    scaled = replayed(replicas=None)
    for policy in scaled["policies"]:
        assert all(one >= 1 for one in policy["timeline"]["target"])
        assert all(1 <= one <= 6 for one in policy["timeline"]["replicas"])


def test_progress_is_told_to_the_end_for_each_policy() -> None:
    seen: dict[str, list[float]] = {}
    runner.run_all(experiment(), POLICY_NAMES, 2, lambda name, share: seen.setdefault(name, []).append(share))
    assert set(seen) == set(POLICY_NAMES)
    assert all(shares == sorted(shares) and shares[-1] == 1.0 for shares in seen.values())


def test_an_overload_is_noted() -> None:
    crowded = replayed(load=replace(LOAD, rate_factor=30.0))
    assert "more than these engines carry" in crowded["notes"][0]


def test_the_page_carries_the_document_and_asks_the_network_for_nothing(document: dict[str, Any]) -> None:
    text = page.render(document, "outrider simulate <x>")
    carried = re.search(r'id="result">(.*?)</script>', text, re.DOTALL)
    assert carried is not None
    assert json.loads(carried[1]) == document
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"|url\(|@import|https?://', text)
    assert "&lt;x&gt;" in text
    assert "chat-&lt;/script&gt;-&amp;" in text


def test_the_page_gives_every_policy_of_the_catalogue_a_look_of_its_own() -> None:
    sheet = html.style_sheet()
    assert all(re.search(rf"\.{name} {{[^}}]*stroke: var\(--{name}\)", sheet) for name in POLICIES)


def test_the_verdict_ranks_and_calls_small_differences_none() -> None:
    def totals(name: str, goodput: float) -> Mapping[str, Any]:
        return {"name": name, "totals": {"goodput_tps": goodput, "tpot_s": {"p50": 1 / goodput}}}

    said = page.verdict({"policies": [totals("k1", 998.0), totals("k5", 900.0), totals("outrider", 1000.0)]})
    assert said == (
        "Most good tokens: outrider, 1,000 a second; as many, within 0.5 %: k1; k5 10.0 % less."
        " Shortest median time per token: outrider, 1.0 ms."
    )
