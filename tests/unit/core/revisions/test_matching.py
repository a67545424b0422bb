"""Like windows of the same time, and the slope of the rate over the batch size."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import numpy as np
import pytest

from outrider.core.revisions.evidence import Boot, Evidence, Window
from outrider.core.revisions.intervals import gain
from outrider.core.revisions.matching import PRIOR_SLOPE, QUOTA, matched, slope

from .builders import boot, evidence


@pytest.mark.parametrize(
    ("batch", "heard"),
    [
        pytest.param(20.0, True, id="equal batch"),
        pytest.param(39.0, True, id="nearly twice the batch"),
        pytest.param(41.0, False, id="more than twice the batch"),
        pytest.param(9.0, False, id="less than half the batch"),
    ],
)
def test_only_like_batches_are_compared(batch: float, heard: bool) -> None:
    found = matched(Evidence(0.0, (boot("stable", batch=20.0),), (boot("candidate", batch=batch),)))
    assert bool(found.heard) is heard


def test_only_windows_of_the_same_time_are_compared() -> None:
    found = matched(Evidence(0.0, (boot("stable", count=60),), (boot("candidate", first=50, count=60),)))
    assert len(found.heard[0].columns) == 10


def test_a_window_with_few_tokens_tells_nothing() -> None:
    one = boot("candidate")
    quiet = replace(one, windows=tuple(replace(window, tokens=199.0) for window in one.windows))
    assert not matched(Evidence(0.0, (boot("stable"),), (quiet,))).heard


def test_a_boot_is_heard_for_its_quota_and_no_longer() -> None:
    found = matched(Evidence(0.0, (boot("stable", count=60),), (boot("candidate", count=60),)))
    assert len(found.heard[0].columns) == QUOTA
    assert found.heard[0].closed
    assert found.heard[0].until_s == QUOTA * 15.0


def test_a_stable_boot_that_was_there_for_a_moment_does_not_count() -> None:
    found = evidence(0.0)
    brief = boot("brief", 5.0, count=QUOTA // 2 - 1)
    seen = matched(replace(found, stable=(*found.stable, brief)))
    assert seen.heard[0].peers[:3].all()
    assert not seen.heard[0].peers[3].any()


def fleet(true_slope: float, noise: float, load: float = 0.25, share: float = 1.0) -> Evidence:
    """Four boots whose rate depends on the batch size by a power law, with batch sizes that are read off wrongly."""
    rng = np.random.default_rng(3)
    common = load * rng.standard_normal(400)
    boots = []
    for at in range(4):
        batch = np.log(20.0 * (share if at == 3 else 1.0)) + common + 0.05 * rng.standard_normal(400)
        rate = 5.5 + true_slope * batch + 0.05 * rng.standard_normal(400)
        seen = batch + noise * rng.standard_normal(400)
        boots.append(
            Boot(
                f"boot-{at}",
                tuple(Window(15.0 * column, exp(seen[column]), exp(rate[column]), 50_000.0) for column in range(400)),
            )
        )
    return Evidence(0.0, tuple(boots[:3]), tuple(boots[3:]))


@pytest.mark.parametrize("true_slope", [-0.05, -0.3, -0.8])
@pytest.mark.parametrize("noise", [0.0, 0.2], ids=["exact batch", "batch read off wrongly"])
def test_the_slope_is_found_although_batch_sizes_are_read_off_wrongly(true_slope: float, noise: float) -> None:
    assert slope(matched(fleet(true_slope, noise)).grid) == pytest.approx(true_slope, abs=0.06)


def test_where_load_does_not_vary_the_slope_is_the_prior() -> None:
    assert slope(matched(evidence(0.0)).grid) == pytest.approx(PRIOR_SLOPE, abs=0.02)
    assert slope(matched(Evidence(0.0)).grid) == PRIOR_SLOPE


def test_traffic_that_is_hard_to_draft_is_not_taken_for_a_slope() -> None:
    """Where drafts are accepted less, requests stay longer and batches grow: the rate falls for another reason."""
    found = fleet(-0.1, 0.0)
    confounded = [
        replace(one, windows=tuple(
            replace(window, rate_tps=window.rate_tps * 20.0 / window.batch, length=10.0 * 20.0 / window.batch)
            for window in one.known
        ))
        for one in (*found.stable, *found.candidate)
    ]  # fmt: skip
    seen = Evidence(0.0, tuple(confounded[:3]), tuple(confounded[3:]))
    assert slope(matched(seen).grid) == pytest.approx(-0.1, abs=0.06)


def test_less_load_is_no_gain() -> None:
    found = matched(fleet(-0.5, 0.0, share=0.75))
    seen = gain(found.grid, found.heard, slope(found.grid))
    assert seen is not None
    assert seen.value == pytest.approx(0.0, abs=0.03)
