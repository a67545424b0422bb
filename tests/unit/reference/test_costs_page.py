"""The page of costs: arithmetic by hand, and no figure without a measurement behind it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from outrider.core.law import Arm
from outrider.reference import costs
from outrider.reference.__main__ import HEADER
from outrider.reference.tiers import CARD_LABEL, FOLDER, PRICES, Tier, read_tier, read_tiers, usd_per_million
from tests.unit.api.bodies import ROOT, changed

MID_MARKET = FOLDER / "mid-market.yaml"


@pytest.fixture(scope="module")
def text() -> str:
    return costs.page()


def section(text: str, name: str) -> str:
    """A second-level section of the page."""
    return re.split(r"^## ", text.split(f"\n## {name}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def with_changes(tmp_path: Path, changes: dict[str, Any]) -> Path:
    """The mid-market tier with changes, as a file."""
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump(changed(yaml.safe_load(MID_MARKET.read_text(encoding="utf-8")), changes)))
    return path


def test_the_committed_page_is_what_the_tiers_say(text: str) -> None:
    assert (ROOT / "docs" / "reference" / "costs.md").read_text(encoding="utf-8") == HEADER + text


def test_cost_by_hand() -> None:
    # 3.60 USD an hour are a tenth of a cent a second, which a thousand tokens share.
    assert usd_per_million(3.6, 1000.0) == pytest.approx(1.0)
    assert usd_per_million(3.6, 500.0) == pytest.approx(2.0)


def test_a_row_of_the_measured_table_by_hand(text: str) -> None:
    # Batch 64: 7,435.4 tokens a second without a drafter and 12,604.5 at K 3, on one GPU of 6.88 USD an hour.
    without, with_drafter = (f"{6.88 / 3600 / rate * 1e6:.2f}" for rate in (7435.4, 12604.5))
    assert f"| 64 | 7,435 | {without} | 3 | 12,604 | {with_drafter} |" in section(text, "mid-market")


def test_rows_by_load_cost_their_replicas(text: str) -> None:
    table = section(text, "mid-market").split("### Predicted", 1)[1].split("###", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) == len(costs.LOADS_RPS)
    for load, *pairs in rows:
        for replicas, cost in (pairs[:2], pairs[2:]):
            if replicas == costs.NONE:
                assert cost == costs.NONE
            else:
                assert float(cost) == pytest.approx(int(replicas) * 6.88 / 3600 / (float(load) * 200) * 1e6, abs=0.005)


def test_tokens_cost_something_only_where_they_were_measured(text: str) -> None:
    measured = {tier.name for tier in read_tiers() if tier.profile is not None}
    assert measured == {"mid-market"}
    for tier in read_tiers():
        assert ("Not measured" in section(text, tier.name)) == (tier.name not in measured)
        assert ("USD per million" in section(text, tier.name)) == (tier.name in measured)


@pytest.mark.parametrize(
    ("changes", "measured"),
    [
        pytest.param({}, True, id="as it is"),
        pytest.param({"spec.model.id": "Qwen/Qwen3-8B"}, False, id="another model"),
        pytest.param({"spec.model.quantization": "fp8"}, False, id="quantised"),
        pytest.param({"spec.model.kvCacheDtype": "fp8"}, False, id="another KV cache"),
        pytest.param({"spec.speculation.method": "eagle3"}, False, id="another way to draft"),
        pytest.param({"spec.resources.gpus": 2}, False, id="more GPUs"),
        pytest.param({"spec.placement.nodeSelector": {CARD_LABEL: "NVIDIA-L4"}}, False, id="another card"),
    ],
)
def test_a_profile_stands_for_nothing_but_what_was_measured(
    tmp_path: Path, changes: dict[str, Any], measured: bool
) -> None:
    assert (read_tier(with_changes(tmp_path, changes)).profile is not None) == measured


@pytest.mark.parametrize("selector", [{}, {CARD_LABEL: "NVIDIA-H200"}], ids=["no card", "a card without a price"])
def test_a_tier_without_a_price_is_refused_by_name(tmp_path: Path, selector: dict[str, str]) -> None:
    path = with_changes(tmp_path, {"spec.placement.nodeSelector": selector})
    with pytest.raises(ValueError, match=r"changed\.yaml: spec\.placement\.nodeSelector.*add a price with its source"):
        read_tier(path)


class Constant(Arm):
    """An engine that carries ten requests a second, whatever the objective."""

    def rate_within_rps(self, tpot_objective_s: float, spread: tuple[float, float] = (1.0, 1.0)) -> float:
        return 10.0


@pytest.mark.parametrize(
    ("load_rps", "replicas"),
    [(1.0, 2), (20.0, 2), (21.0, 3), (80.0, 8), (81.0, None)],
    ids=["below the lowest", "just two", "just three", "just the highest", "above the highest"],
)
def test_replicas_stay_within_the_bounds_of_the_file(load_rps: float, replicas: int | None) -> None:
    tier: Tier = read_tier(MID_MARKET)
    arm = Constant(*(np.zeros(2),) * 3, output_tokens=200.0)
    assert tier.replicas(arm, load_rps) == replicas


def test_every_price_says_where_and_when_it_was_read() -> None:
    for price in PRICES.values():
        assert re.search(r"\b20\d\d-\d\d-\d\d$", price.source)
        assert re.match(r"[\w.-]+/[\w.-]+: ", price.source)
