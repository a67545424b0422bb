"""The GPU benchmark's page: what its rows say, and that what is committed is what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import calibration, session, shipped
from benchmarks.gpu.compare import Compared, Model, compare, ranking, worst
from benchmarks.gpu.headline import DEFINITIONS, TARGETS, headline, headroom
from benchmarks.gpu.page import FOLDER, NOTES
from benchmarks.gpu.rows import Results, read_all
from benchmarks.gpu.runs import SETTLE_S, TRACE
from benchmarks.markdown import text
from outrider.core import measured_profile
from outrider.simulator.profile import H200_PROFILE, load_profile

ROOT = Path(__file__).parents[3]
ARMS = ("outrider", "none", "k1", "k3", "k5")


def level(arm: str, at: int, rate: float, tpot_ms: float = 5.0) -> dict[str, Any]:
    times = {"mean_ms": tpot_ms, "p99_ms": 2 * tpot_ms}
    return {"kind": "level", "arm": arm, "level": at, "tokens_per_second": rate, "tpot": times, "ttft": times}


def compared(arm: str, at: int, gpu: float, simulator: float) -> Compared:
    return Compared(arm, at, [level(arm, at, gpu)], [level(arm, at, simulator)])


def boot(rates: dict[str, float], passes: int = 3, **trace: Any) -> Results:
    """Each arm at one rate on all levels, played so many times."""
    end = {"kind": "trace", "num_failed": 0, "stalls": {"count": 0, "seconds": 0.0}}
    rows: list[dict[str, Any]] = [{"kind": "start", "card": "a card, its driver"}]
    for arm, rate in rates.items():
        for _ in range(passes):
            rows += [level(arm, at, rate) for at, _ in TRACE]
            rows.append({**end, "arm": arm, **trace})
    return Results.of(rows)


def values(boots: Sequence[Results]) -> dict[str, Any]:
    found = headline(boots, [compared("k1", 4, 100.0, 100.0)])
    return {key: one.value for key, one in found.items()}


def test_errors_are_of_the_simulator_against_the_gpu_and_the_worst_counts() -> None:
    rows = [compared("k1", 4, 100.0, 103.0), compared("k3", 4, 100.0, 92.0)]
    assert worst(rows, "tokens_per_second").error("tokens_per_second") == pytest.approx(-0.08)


def test_arms_are_ranked_where_the_gpu_has_them_apart() -> None:
    near = [compared("outrider", 160, 104.0, 90.0), compared("k1", 160, 100.0, 100.0)]
    assert ranking(near) == []
    same = [compared("outrider", 4, 130.0, 110.0), compared("k1", 4, 100.0, 100.0)]
    reversed_order = [compared("outrider", 64, 130.0, 90.0), compared("k1", 64, 100.0, 100.0)]
    assert [one.agrees for one in ranking([*same, *reversed_order])] == [True, False]


def test_what_three_passes_of_every_arm_do_not_show_is_null_and_says_what_is_missing() -> None:
    found = headline([boot({"outrider": 100.0, "k1": 90.0}, passes=1)], [compared("k1", 4, 100.0, 100.0)])
    for key in ("share_of_best_arm_min", "gain_vs_best_fixed_mixed_percent", "worst_vs_no_drafter_percent"):
        assert found[key].value is None
        assert "outrider 1" in found[key].why
    assert "none 0" in found["share_of_best_arm_min"].why


def test_arms_of_several_boots_are_put_together() -> None:
    rates = dict(zip(ARMS, (110.0, 120.0, 90.0, 100.0, 95.0), strict=True))
    found = values([boot({arm: rates[arm] for arm in ARMS if arm != "none"}), boot({"none": rates["none"]})])
    assert found["share_of_best_arm_min"] == pytest.approx(110.0 / 120.0)
    assert found["gain_vs_best_fixed_mixed_percent"] == pytest.approx(10.0)
    assert found["worst_vs_no_drafter_percent"] == pytest.approx(100.0 / 12.0)


@pytest.mark.parametrize(
    ("trace", "crashes"),
    [
        pytest.param({}, 0, id="whole"),
        pytest.param({"num_failed": 2}, 3, id="requests lost"),
        pytest.param({"stalls": {"count": 1, "seconds": 15.0}}, 3, id="a stall"),
        pytest.param({"stalls": None}, 3, id="the engine is silent"),
    ],
)
def test_a_pass_with_a_stall_or_a_lost_request_counts_as_a_crash(trace: dict[str, Any], crashes: int) -> None:
    assert values([boot({"k1": 100.0}, **trace)])["crashes"] == crashes


def test_rows_of_two_boots_in_one_file_are_refused() -> None:
    with pytest.raises(ValueError, match="2 starts"):
        Results.of([{"kind": "start"}, {"kind": "start"}])


def test_rows_without_a_calibration_name_the_command_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "results-a.jsonl").write_text(json.dumps({"kind": "start", "at": 1.0, "card": "A, 1"}) + "\n")
    with pytest.raises(ValueError, match="calibrate"):
        read_all(tmp_path)


def test_rows_of_two_cards_stay_apart_and_the_card_measured_last_comes_first(tmp_path: Path) -> None:
    for name, card, at, rest in (("a", "A, 1", 1.0, ["cell"]), ("b", "B, 1", 2.0, ["cell"]), ("c", "B, 1", 3.0, [])):
        rows = [{"kind": "start", "at": at, "card": card}, *({"kind": kind} for kind in rest)]
        (tmp_path / f"results-{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [[boot.start["at"] for boot in boots] for boots in read_all(tmp_path)] == [[2.0, 3.0], [1.0]]
    with pytest.raises(ValueError, match="different cards"):
        headline([boots[0] for boots in read_all(tmp_path)], [])


def test_a_perfect_table_takes_the_best_single_k_of_each_level() -> None:
    rows = boot({"k1": 100.0, "k3": 80.0, "k5": 50.0})
    better = [
        {**row, "tokens_per_second": 200.0} if (row["arm"], row["level"]) == ("k3", 4) else row for row in rows.levels
    ]
    seconds = {at: allowed - SETTLE_S for at, allowed in TRACE}
    whole = sum(seconds.values())
    single = max(100.0 * whole, 80.0 * whole + 120.0 * seconds[4])
    perfect = 100.0 * whole + 100.0 * seconds[4]
    assert headroom([replace(rows, levels=better)]) == pytest.approx(perfect / single - 1.0)


def test_the_profile_gives_a_measured_cell_back() -> None:
    results = read_all(ROOT / FOLDER / "gpu")[0][0]
    card = calibration.profile(results, 528)
    for one in calibration.cells(results):
        if one.prompt == 256:
            assert card.step_time_s(one.batch, one.k, 528, one.context) == pytest.approx(one.seconds, rel=1e-9)


def test_the_shipped_profile_is_that_of_the_rows_and_can_be_read_by_simulator_and_estimator() -> None:
    results = read_all(ROOT / FOLDER / "gpu")[0][0]
    written = shipped.document(results, 528)
    assert json.loads((ROOT / shipped.PATH).read_text(encoding="utf-8")) == written
    card, measured = load_profile(H200_PROFILE), calibration.profile(results, 528)
    for batch, k in ((1, 0), (64, 3), (192, 5)):
        expected = measured.step_time_s(batch, k, 528, 500.0)
        assert card.step_time_s(batch, k, 528, 500.0) == pytest.approx(expected, rel=2e-3)
    assert card.prefill_time_s(256, beside=True) == pytest.approx(measured.prefill_time_s(256, beside=True), rel=1e-4)
    assert (card.prompt_s, card.jump_s) == pytest.approx((measured.prompt_s, measured.jump_s), rel=1e-3)
    with pytest.raises(ValueError, match="no run without a drafter"):
        card.step_time_s(1, 0, 528, 0.0, drafter=False)
    assert measured_profile.read(written).capture_size == 528


def played(seconds: float, failing: str = "nothing") -> tuple[list[str], session.Played]:
    """What a sitting of so many seconds runs, and what it tells, where every command takes what is allowed for it."""
    now_s, done = [0.0], list[str]()

    def do(words: Sequence[str], limit_s: float) -> bool:
        done.append(" ".join(words))
        allowed = next(step.seconds for step in session.PLAN if step.command == done[-1])
        assert limit_s >= allowed or words == ["stop"]
        now_s[0] += allowed
        return not done[-1].startswith(failing)

    return done, session.play(seconds, do, lambda: now_s[0])


EVERY = [step.command for step in session.PLAN]


def test_a_sitting_with_time_enough_does_all_of_the_plan() -> None:
    assert played(sum(step.seconds for step in session.PLAN)) == (EVERY, session.Played([], []))


@pytest.mark.parametrize(
    ("seconds", "left_out"),
    [
        pytest.param(1400.0, EVERY[6:7], id="the spare step goes first"),
        pytest.param(1000.0, EVERY[4:5], id="too short for the arms with a drafter"),
        pytest.param(100.0, EVERY, id="not even a start"),
    ],
)
def test_a_short_sitting_leaves_out_what_does_not_fit_and_stops_each_engine_that_it_started(
    seconds: float, left_out: list[str]
) -> None:
    done, told = played(seconds)
    assert told == session.Played(left_out, [])
    assert done.count("stop") == sum(command.startswith("start") for command in done)


def test_after_a_start_that_failed_its_rest_is_ended_and_what_needs_no_such_engine_goes_on() -> None:
    done, told = played(2000.0, failing="start --tuning Off")
    assert done == ["start --tuning Off", "stop", *EVERY[3:]]
    assert told == session.Played(EVERY[1:3], EVERY[:1])


def test_after_a_pass_that_failed_the_next_commands_are_run_all_the_same() -> None:
    done, told = played(2000.0, failing="trace outrider")
    assert done == EVERY
    assert told == session.Played([], EVERY[4:5])


def test_the_plan_allows_for_every_second_of_the_trace_and_its_commands_exist() -> None:
    assert sum(seconds for _, seconds in TRACE) + 1.0 <= session.ROUND_S
    for step in session.PLAN:
        assert step.command.split()[0] in ("start", "trace", "changes", "calibrate", "stop")


def test_every_figure_has_a_definition_and_a_reach_for_each_number_asked() -> None:
    figures = values([boot({"k1": 100.0})])
    assert set(figures) == set(DEFINITIONS)
    assert set(TARGETS) == set(figures) - {"ranking_agrees"}


def test_the_committed_figures_are_what_the_command_makes_of_the_rows() -> None:
    """Plays every measured arm in the simulator."""
    committed = json.loads((ROOT / FOLDER / "gpu.json").read_text(encoding="utf-8"))
    boots = read_all(ROOT / FOLDER / "gpu")[0]
    found = headline(boots, compare(boots, Model.of(boots[0])))
    assert committed["not_measured"] == {key: one.why for key, one in found.items() if one.value is None}
    assert set(committed["headline"]) == set(found)
    for key, value in committed["headline"].items():
        expected = found[key].value
        assert value == (expected if expected is None else pytest.approx(expected, rel=1e-3)), key


def test_the_committed_page_shows_the_committed_figures_and_the_notes() -> None:
    page = (ROOT / FOLDER / "gpu.md").read_text(encoding="utf-8")
    for key, value in json.loads((ROOT / FOLDER / "gpu.json").read_text(encoding="utf-8"))["headline"].items():
        shown = ("no", "yes")[value] if isinstance(value, bool) else text(value)
        assert re.search(rf"^\| `{key}` \| [^|]* \| {re.escape(shown)} \|", page, re.MULTILINE), key
    assert page.endswith(NOTES.read_text(encoding="utf-8"))
