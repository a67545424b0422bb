"""Candidates that are better, alike and worse beside simulated replicas, through the operator's own control pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.revisions.analysis import Plan
from outrider.core.revisions.record import AT_ONCE
from outrider.errors import Unreachable

from .builders import KEY, World, pod
from .fakes import NOW_S
from .trial_plant import KNOWN, PERIOD_S, Plant

GONE = Unreachable("PrometheusUnreachable", "Prometheus does not answer")
BETTER, NOT_WORSE = Plan("Better", known=KNOWN), Plan("NotWorse", known=KNOWN)


async def started(plan: Plan = BETTER, words: str = "", **changes: object) -> Plant:
    plant = Plant(plan, words, **changes)  # type: ignore[arg-type]
    await plant.start()
    return plant


class TestVerdicts:
    @pytest.mark.parametrize(
        ("plan", "words", "verdict"),
        [
            pytest.param(BETTER, "acme/draft-better-15", "promote", id="a better draft is promoted"),
            pytest.param(BETTER, "acme/draft-worse-15", "withdraw", id="a worse draft is withdrawn"),
            pytest.param(NOT_WORSE, "acme/engine:slower-15", "withdraw", id="a slower image is withdrawn"),
            pytest.param(NOT_WORSE, "acme/engine:2", "promote", id="an equal image is promoted"),
        ],
    )
    async def test_within_a_quarter_of_an_hour(self, plan: Plan, words: str, verdict: str) -> None:
        plant = await started(plan, words)
        *earlier, last = await plant.run(15)
        assert last.verdict == verdict, last.reasons
        assert {one.verdict for one in earlier} == {"wait"}
        assert last.figures is not None
        told = {"better": 0.15, "worse": -0.15, "slower": -0.15}
        expected = next((gain for word, gain in told.items() if word in words), 0.0)
        assert last.figures.gain == pytest.approx(expected, abs=0.03)
        assert plant.world.queued[-1] == KEY

    async def test_an_equal_draft_is_started_anew_and_not_promoted(self) -> None:
        plant = await started(replace(BETTER, max_boots=2))
        last = (await plant.run(40))[-1]
        assert plant.boots == 2
        assert last.verdict == "inconclusive", last.reasons
        assert last.figures is not None
        assert last.figures.boots == 2
        assert len(plant.world.service().record.evidence(set(), 0).candidate) == 2  # type: ignore[union-attr]


class TestFaults:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ("acme/engine:error-10", "requests failed"),
            ("acme/engine:empty-20", "answers are empty"),
            ("acme/engine:cut-20", "answers are cut"),
            ("acme/engine:repeat-20", "answers repeat themselves"),
        ],
    )
    async def test_an_image_that_spoils_answers_is_withdrawn_before_its_time(self, words: str, sentence: str) -> None:
        plant = await started(NOT_WORSE, words)
        found = await plant.run(9)
        assert found[-1].verdict == "withdraw", found[-1].reasons
        assert any(sentence in reason for reason in found[-1].reasons)
        assert len(found) < 36

    async def test_two_crashes_are_too_many_and_one_is_not(self) -> None:
        plant = await started()
        await plant.run(1)
        plant.crash()
        (one,) = await plant.run(0.25)
        assert one.verdict == "wait"
        plant.crash()
        (two,) = await plant.run(0.25)
        assert two.verdict == "withdraw"
        assert "crashed 2 times" in two.reasons[0]

    async def test_crashes_of_earlier_starts_count(self) -> None:
        plant = await started()
        service = plant.world.service()
        assert service.trial is not None
        service.trial = replace(service.trial, crashes=1)
        plant.crash()
        assert (await plant.run(0.25))[-1].verdict == "withdraw"

    async def test_crashes_and_time_are_judged_without_a_store(self) -> None:
        plant = await started()
        await plant.run(1)
        plant.store.error = GONE
        plant.crash()
        plant.crash()
        assert (await plant.run(0.25))[-1].verdict == "withdraw"


class TestTheStore:
    async def test_nothing_is_asked_while_no_candidate_is_judged(self) -> None:
        plant = await started()
        service = plant.world.service()
        assert service.trial is not None
        for stage in ("Waiting", "Starting", "Promoting"):
            service.trial = replace(service.trial, stage=stage)
            await plant.period()
        service.trial = None
        await plant.period()
        assert plant.store.compared == []
        assert service.judgement is None

    async def test_each_pass_asks_for_what_is_new_since_the_last(self) -> None:
        plant = await started()
        await plant.run(2)
        ends = [at_s for _, _, at_s in plant.store.compared]
        # A window is read when the scrape after its end is in.
        assert ends == [NOW_S + PERIOD_S * number for number in range(1, 8)]
        assert {span_s for _, span_s, _ in plant.store.compared} == {PERIOD_S + 10.0}

    @pytest.mark.failure("Prometheus", "gone in mid-trial")
    async def test_while_it_is_away_nothing_is_judged_but_crashes_and_what_was_missed_is_made_up_for(self) -> None:
        plant, steady = await started(), await started()
        await plant.run(2)
        plant.store.error = GONE
        assert {one.verdict for one in await plant.run(5)} == {"wait"}
        plant.store.error = None
        await plant.run(1)
        await steady.run(8)
        records = [one.world.service().record for one in (plant, steady)]
        assert records[0] == records[1]

    @pytest.mark.failure("Ourselves", "killed at every single step of a trial")
    async def test_an_operator_that_was_started_anew_finds_the_same_verdict_within_a_few_passes(self) -> None:
        plant = await started(replace(BETTER, max_boots=2))
        await plant.run(20)
        before = plant.world.service()
        trial, record = before.trial, before.record
        assert record is not None
        pods = list(before.pods.values())
        plant.world.restart()
        await plant.world.settle()
        service = plant.world.service()
        service.trial = trial
        service.pods = {one.name: one for one in pods}
        (first,) = await plant.run(PERIOD_S / 60.0)
        assert first.verdict == "wait"
        assert service.record is not None
        assert service.record.until_s == record.until_s - PERIOD_S * (80 - 1 - AT_ONCE)
        await plant.run(2 * PERIOD_S / 60.0)
        for name, heard in record.heard.items():
            assert service.record.heard[name].windows[: len(heard.windows)] == heard.windows

    async def test_time_does_not_run_out_while_the_past_is_read_again(self) -> None:
        plant = await started(replace(BETTER, max_time_s=700.0))
        for _ in range(60):
            plant.now_s += PERIOD_S  # nobody looks, and the store has all of it
            plant.world.clock.advance(PERIOD_S)
        await plant.period()
        judgement = plant.world.service().judgement
        assert judgement is not None
        assert judgement.verdict == "wait"
        await plant.period()
        assert plant.world.service().judgement.verdict == "inconclusive"  # type: ignore[union-attr]

    async def test_many_comparisons_are_asked_for_together(self) -> None:
        world = World()
        for name in ("a", "b", "c"):
            service = world.add({}, name)
            await world.settle(name)
            world.see(pod(f"{name}-0", service=name))
            trial = (await started()).world.service().trial
            assert trial is not None
            service.trial = replace(trial, traffic_since_s=NOW_S - 600.0 + 1.0)
        await world.control.run()
        assert [keys for keys, _, _ in world.metrics.compared] == [[("ml", "a"), ("ml", "b"), ("ml", "c")]]


class TestOneAfterTheOther:
    async def test_another_candidate_begins_with_nothing_known(self) -> None:
        plant = await started()
        await plant.run(2)
        service = plant.world.service()
        assert service.trial is not None
        service.trial = replace(service.trial, revision="r3", traffic_since_s=plant.now_s)
        await plant.period()
        assert service.record is not None
        assert (service.record.revision, dict(service.record.heard)) == ("r3", {})

    async def test_while_an_objects_pass_is_under_way_its_candidate_is_not_judged(self) -> None:
        plant = await started()
        async with plant.world.service().lock:
            await plant.period()
        assert plant.world.service().judgement is None
        await plant.period()
        assert plant.world.service().judgement is not None
