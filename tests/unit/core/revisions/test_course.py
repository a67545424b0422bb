"""The course of a change: what rolls, what is tried, and how each trial ends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from outrider.core.revisions import course
from outrider.core.revisions.analysis import Figures, Judgement, Plan, Verdict
from outrider.core.revisions.course import RETRY_MOST_S, RETRY_S, Step
from outrider.core.revisions.intervals import Spread
from outrider.core.revisions.quality import Quality
from outrider.core.revisions.quality import Verdict as QualityVerdict
from outrider.core.revisions.remembered import MAX_TEXT, from_document, same_but_for_words, to_document
from outrider.core.revisions.sight import Candidate, Room, Sight
from outrider.core.revisions.stages import GAVE_BACK_S
from outrider.core.revisions.trial import HISTORY, KNOWN_BOOTS, REMEMBERED, Revisions
from outrider.core.survival import Counts

NOW_S = 1_800_000_000.0
OLD, NEW, OTHER = "0000000000", "1111111111", "2222222222"
SERVED = Revisions(stable=OLD, spec={"old": True}, good=(OLD,))
PLAN = Plan("Better")
HERE = Spread(0.001, 3.0)
"""Of boots that differ by 1.8 %."""


def sight(**changes: Any) -> Sight:
    """Three replicas serve the old revision, and the spec asks for the new one."""
    found = Sight(
        wanted=NEW,
        spec={"new": True},
        plan=PLAN,
        policy="Canary",
        approved=None,
        serving=3,
        complete=OLD,
        stuck=False,
        candidate=Candidate(),
        room=Room(replicas=3, pods=3, needed=2),
        start_limit_s=1000.0,
        judgement=None,
        now_s=NOW_S,
    )
    return replace(found, **changes)


def told(verdict: Verdict, *, restart: bool = False, here: Spread | None = None) -> Judgement:
    """With figures of these boots."""
    counts = Counts((), ())
    figures = None if here is None else Figures(0.0, -0.1, 0.1, 2, 3.0, 0.01, 0.004, 3, 0.0, here, counts, counts)
    return Judgement(verdict, ("token goodput says so",), figures, restart=restart)


def running(**changes: Any) -> Revisions:
    """A trial whose engine serves."""
    started = course.step(SERVED, sight()).revisions
    known = course.step(started, sight(candidate=Candidate(serves=True))).revisions
    assert known.trial is not None
    assert known.trial.stage == "Running"
    return replace(known, trial=replace(known.trial, **changes))


def ended(step: Step) -> tuple[str, str]:
    """Outcome and reason of the trial that just ended."""
    assert step.revisions.trial is None
    return step.revisions.history[0].outcome, step.revisions.history[0].reason


class TestWhatRolls:
    def test_the_first_revision_rolls_and_is_remembered(self) -> None:
        found = course.step(Revisions(), sight(complete=None))
        assert found.rolls
        assert (found.revisions.stable, found.revisions.spec, found.revisions.good) == (NEW, {"new": True}, ())

    def test_a_revision_is_good_once_all_engines_serve_with_it(self) -> None:
        known = course.step(Revisions(), sight()).revisions
        assert course.step(known, sight(complete=None)).revisions.good == ()
        assert course.step(known, sight(complete=NEW)).revisions.good == (NEW,)

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({"policy": "Rolling"}, id="policy Rolling"),
            pytest.param({"plan": None}, id="a change that raises no question"),
            pytest.param({"approved": NEW}, id="an approved revision"),
            pytest.param({"stuck": True}, id="stable engines that cannot be replaced"),
            pytest.param({"policy": None, "serving": 1}, id="a single engine, where nobody asked for a trial"),
            pytest.param({"policy": None, "room": Room(3, 3, needed=0)}, id="no load, where nobody asked for a trial"),
            pytest.param({"policy": None, "room": Room(3, 3)}, id="an unknown load, where nobody asked for a trial"),
            pytest.param({"serving": 0}, id="no engine to compare with"),
        ],
    )
    def test_it_rolls(self, changes: dict[str, Any]) -> None:
        found = course.step(SERVED, sight(**changes))
        assert found.rolls
        assert (found.revisions.stable, found.revisions.trial) == (NEW, None)

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({}, id="policy Canary"),
            pytest.param({"policy": "Manual"}, id="policy Manual"),
            pytest.param({"policy": None, "serving": 2}, id="two engines, where nobody said how"),
            pytest.param({"serving": 1}, id="a single engine, where the user asked for a trial"),
            pytest.param({"room": Room(3, 3, needed=0)}, id="no load, where the user asked for a trial"),
            pytest.param({"approved": OTHER}, id="another revision is approved"),
        ],
    )
    def test_it_is_tried(self, changes: dict[str, Any]) -> None:
        found = course.step(SERVED, sight(**changes))
        assert not found.rolls
        assert found.revisions.stable == OLD
        assert found.revisions.trial is not None
        assert (found.revisions.trial.stage, found.revisions.trial.placed) == ("Starting", True)

    def test_beside_a_revision_that_never_served_nothing_is_tried(self) -> None:
        assert course.step(replace(SERVED, good=()), sight(complete=None)).rolls

    def test_a_former_revision_comes_back_without_a_trial(self) -> None:
        known = replace(SERVED, good=(OLD, NEW))
        assert course.step(known, sight()).rolls


class TestCourse:
    def test_a_candidate_that_serves_is_compared(self) -> None:
        trial = running().trial
        assert trial is not None
        assert trial.judged
        assert trial.traffic_since_s == NOW_S

    def test_a_better_one_is_promoted_and_serves_until_all_engines_have_its_template(self) -> None:
        found = course.step(running(), sight(judgement=told("promote")))
        assert found.rolls
        assert (found.revisions.stable, found.revisions.spec) == (NEW, {"new": True})
        on_the_way = course.step(found.revisions, sight(complete=None))
        assert on_the_way.rolls
        assert on_the_way.revisions.trial is not None
        assert on_the_way.revisions.trial.placed
        done = course.step(on_the_way.revisions, sight(complete=NEW))
        assert ended(done) == ("Promoted", "token goodput says so")
        assert done.revisions.good == (NEW, OLD)

    def test_a_worse_one_is_withdrawn_and_never_tried_again_by_itself(self) -> None:
        found = course.step(running(), sight(judgement=told("withdraw")))
        assert not found.rolls
        assert ended(found) == ("Withdrawn", "token goodput says so")
        assert found.news[0].warning
        later = course.step(found.revisions, sight(now_s=NOW_S + 10 * RETRY_MOST_S))
        assert (later.rolls, later.revisions.trial) == (False, None)

    def test_one_without_a_verdict_is_not_promoted_and_tried_again_later_and_later(self) -> None:
        known, now_s, pauses_s = SERVED, NOW_S, []
        for _ in range(7):
            started = course.step(known, sight(now_s=now_s)).revisions
            serves = course.step(started, sight(now_s=now_s, candidate=Candidate(serves=True))).revisions
            found = course.step(serves, sight(now_s=now_s, judgement=told("inconclusive")))
            assert ended(found)[0] == "Inconclusive"
            known, until_s = found.revisions, found.revisions.withdrawn[0].until_s
            assert until_s is not None
            assert course.step(known, sight(now_s=until_s - 1.0)).revisions.trial is None
            pauses_s.append(until_s - now_s)
            now_s = until_s
        assert pauses_s[:3] == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S]
        assert pauses_s[-1] == RETRY_MOST_S

    def test_a_boot_that_has_told_what_it_can_is_followed_by_another(self) -> None:
        found = course.step(running(crashes=1), sight(judgement=told("wait", restart=True))).revisions.trial
        assert found is not None
        assert (found.stage, found.boot, found.crashes, found.judged) == ("Starting", 2, 1, False)

    def test_with_policy_manual_the_user_has_the_last_word(self) -> None:
        waits = course.step(running(), sight(policy="Manual", judgement=told("promote")))
        assert not waits.rolls
        assert waits.revisions.trial is not None
        assert waits.revisions.trial.stage == "Approval"
        assert [one.reason for one in waits.news] == ["CandidateWaits"]
        again = course.step(waits.revisions, sight(policy="Manual", judgement=told("promote")))
        assert again.news == ()
        approved = course.step(again.revisions, sight(policy="Manual", approved=NEW))
        assert approved.rolls
        assert approved.revisions.trial is not None
        assert approved.revisions.trial.stage == "Promoting"

    def test_what_was_withdrawn_goes_to_all_engines_once_it_is_approved(self) -> None:
        known = course.step(running(), sight(judgement=told("withdraw"))).revisions
        assert course.step(known, sight(approved=NEW)).rolls

    def test_a_second_crash_withdraws_it(self) -> None:
        once = course.step(running(), sight(candidate=Candidate(crashes=1)))
        assert once.revisions.trial is not None
        found = course.step(once.revisions, sight(candidate=Candidate(crashes=2, words="no kernel image")))
        outcome, reason = ended(found)
        assert outcome == "Withdrawn"
        assert "no kernel image" in reason

    def test_crashes_of_an_earlier_boot_count(self) -> None:
        assert ended(course.step(running(crashes=1), sight(candidate=Candidate(crashes=1))))[0] == "Withdrawn"

    @pytest.mark.failure(
        "Engines",
        "a candidate does not start",
        k="of the stable engines stays",
        replicas="stay",
        conditions=["RevisionCurrent False CandidateWithdrawn"],
        alerts=["OutriderRevisionNotCurrent"],
        ends="withdrawn after the time that a start may take; tried again after an hour, doubling up to a day",
        guard="core/revisions/course.py:_advanced",
    )
    def test_one_that_never_serves_is_withdrawn_after_the_time_that_a_start_may_take(self) -> None:
        known = course.step(SERVED, sight()).revisions
        assert course.step(known, sight(now_s=NOW_S + 1000.0)).revisions.trial is not None
        assert ended(course.step(known, sight(now_s=NOW_S + 1001.0)))[0] == "Withdrawn"

    def test_taking_the_change_back_ends_the_trial(self) -> None:
        found = course.step(running(), sight(wanted=OLD, plan=None))
        assert ended(found)[0] == "Reverted"
        assert found.revisions.withdrawn == ()

    def test_another_change_in_mid_trial_is_tried_in_its_place(self) -> None:
        found = course.step(running(), sight(wanted=OTHER)).revisions
        assert found.history[0].outcome == "Replaced"
        assert found.trial is not None
        assert (found.trial.revision, found.trial.replaces, found.trial.boot) == (OTHER, OLD, 1)

    def test_another_change_in_mid_promotion_waits_for_its_end(self) -> None:
        known = course.step(running(), sight(judgement=told("promote"))).revisions
        found = course.step(known, sight(wanted=OTHER, complete=None)).revisions
        assert found.trial is not None
        assert (found.trial.revision, found.trial.replaces, found.trial.placed) == (OTHER, NEW, False)
        assert course.step(found, sight(wanted=OTHER, complete=NEW)).revisions.trial.placed  # type: ignore[union-attr]

    def test_policy_rolling_in_mid_trial_promotes_at_once(self) -> None:
        found = course.step(running(), sight(policy="Rolling"))
        assert found.rolls
        assert found.revisions.trial is not None
        assert found.revisions.trial.stage == "Promoting"

    def test_the_margin_may_change_in_mid_trial(self) -> None:
        found = course.step(running(), sight(plan=Plan("NotWorse", margin=0.03))).revisions.trial
        assert found is not None
        assert found.plan.margin == 0.03


class TestRoom:
    FULL = Room(replicas=3, pods=3, most=3, needed=2)

    def waiting(self, room: Room) -> Revisions:
        known = course.step(SERVED, sight(room=room)).revisions
        assert known.trial is not None
        assert (known.trial.stage, known.trial.placed) == ("Waiting", False)
        return known

    def test_without_a_spare_gpu_it_takes_the_place_of_a_replica_that_the_load_does_not_need(self) -> None:
        known = self.waiting(self.FULL)
        assert known.trial is not None
        assert known.trial.freed == 2
        still = course.step(known, sight(room=replace(self.FULL, replicas=2))).revisions
        assert still.trial is not None
        assert not still.trial.placed, "the third pod is still there"
        gone = course.step(still, sight(room=replace(self.FULL, replicas=2, pods=2))).revisions
        assert gone.trial is not None
        assert gone.trial.placed

    @pytest.mark.parametrize(
        ("room", "words"),
        [
            pytest.param(replace(FULL, needed=3), "the load needs 3 replicas of 3", id="all are needed"),
            pytest.param(replace(FULL, needed=None), "not known yet", id="nothing is known of the load"),
            pytest.param(replace(FULL, ours=False), "another sets the number", id="an autoscaler of somebody else"),
            pytest.param(Room(1, 1, 1, 1), "the only replica", id="a single replica"),
        ],
    )
    def test_it_waits_and_says_why(self, room: Room, words: str) -> None:
        known = self.waiting(room)
        assert known.trial is not None
        assert known.trial.freed is None
        assert words in known.trial.reason

    def test_a_pod_that_no_node_takes_waits_for_a_freed_place(self) -> None:
        known = course.step(SERVED, sight()).revisions
        pending = Candidate(unplaced="0/1 nodes are available: 1 Insufficient nvidia.com/gpu")
        needed = course.step(known, sight(candidate=pending, room=Room(3, 3, None, 3))).revisions
        assert needed.trial is not None
        assert (needed.trial.stage, needed.trial.placed, needed.trial.freed) == ("Waiting", True, None)
        assert "Insufficient" in needed.trial.reason
        long_after_s = NOW_S + 5000.0
        freed = course.step(needed, sight(candidate=pending, now_s=long_after_s)).revisions
        assert freed.trial is not None
        assert freed.trial.freed == 2
        starts = course.step(freed, sight(now_s=long_after_s)).revisions
        assert starts.trial is not None
        assert (starts.trial.stage, starts.trial.stage_since_s) == ("Starting", long_after_s)

    def test_a_load_that_grows_takes_the_place_back_until_the_candidate_serves(self) -> None:
        started = course.step(self.waiting(self.FULL), sight(room=replace(self.FULL, pods=2))).revisions
        grown = replace(self.FULL, needed=3)
        back = course.step(started, sight(room=grown)).revisions
        assert back.trial is not None
        assert (back.trial.placed, back.trial.freed, back.trial.stage) == (False, None, "Waiting")
        soon = course.step(back, sight(room=self.FULL, now_s=NOW_S + GAVE_BACK_S - 1.0)).revisions
        assert soon.trial is not None
        assert soon.trial.freed is None
        serves = course.step(started, sight(room=grown, candidate=Candidate(serves=True))).revisions
        assert serves.trial is not None
        assert serves.trial.freed == 2

    def test_it_waits_until_all_stable_engines_serve(self) -> None:
        found = course.step(SERVED, sight(complete=None)).revisions.trial
        assert found is not None
        assert not found.placed


class TestSpread:
    def test_what_a_comparison_told_of_boots_is_known_to_the_next(self) -> None:
        for verdict in ("promote", "withdraw", "inconclusive"):
            known = course.step(running(), sight(judgement=told(verdict, here=HERE))).revisions
            assert known.spread == HERE
            known = course.step(running(), sight(wanted=OTHER, judgement=told("wait", here=HERE))).revisions
            assert known.spread == HERE

    def test_of_one_that_goes_on_nothing_is_known_yet(self) -> None:
        for judgement in (told("wait", here=HERE), told("wait", here=HERE, restart=True), told("withdraw")):
            assert course.step(running(), sight(judgement=judgement)).revisions.spread is None
        approval = course.step(running(), sight(policy="Manual", judgement=told("promote", here=HERE))).revisions
        assert approval.spread is None

    def test_comparisons_add_up_to_a_bound(self) -> None:
        known = SERVED.learnt(HERE).learnt(Spread(0.002, 3.0))
        assert known.spread == Spread(0.003, 6.0)
        for _ in range(20):
            known = known.learnt(Spread(0.002, 3.0))
        assert known.spread is not None
        assert known.spread.dof == KNOWN_BOOTS
        assert HERE.value < known.spread.value < Spread(0.002, 3.0).value


class TestMemory:
    def full(self) -> Revisions:
        known = course.step(running(), sight(judgement=told("withdraw", here=HERE))).revisions
        return course.step(known, sight(wanted=OTHER)).revisions

    def test_what_is_written_can_be_read(self) -> None:
        known = self.full()
        assert known.trial is not None
        assert known.withdrawn
        assert known.history
        assert from_document(json.loads(json.dumps(to_document(known)))) == (known, None)

    def test_nothing_written_is_nothing_known(self) -> None:
        assert from_document(None) == (Revisions(), None)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"version": 2}, id="of another version"),
            pytest.param({"trial": {"stage": "Running"}}, id="a trial of one field"),
            pytest.param({"spec": "text"}, id="a spec that is none"),
            pytest.param({"stable": 7}, id="a number for a revision"),
            pytest.param({"history": [1]}, id="history of numbers"),
            pytest.param({"withdrawn": None}, id="nothing where a list belongs"),
            pytest.param({"spread": {"squares": float("nan"), "dof": 3.0}}, id="a spread that is no number"),
            pytest.param({"spread": {"squares": 0.1, "dof": -3.0}}, id="a spread of less than no boots"),
        ],
    )
    def test_a_damaged_document_is_no_document(self, change: dict[str, Any]) -> None:
        known, fault = from_document(to_document(self.full()) | change)
        assert known == Revisions()
        assert fault is not None

    @pytest.mark.parametrize("values", [{"stage": "Sleeping"}, {"since_s": -1.0}, {"boot": "1"}, {"placed": 1}])
    def test_a_trial_that_no_trial_is_like_is_damage(self, values: dict[str, Any]) -> None:
        document = to_document(self.full())
        document["trial"] |= values
        assert from_document(document)[1] is not None

    def test_it_is_bounded(self) -> None:
        known = running(reason="x" * 5000)
        for number in range(30):
            known = course.step(known, sight(wanted=f"{number:010x}")).revisions
            known = course.step(known, sight(wanted=f"{number:010x}", candidate=Candidate(crashes=2))).revisions
            known = known.known_good(f"{number:010x}")
        assert (len(known.history), len(known.withdrawn), len(known.good)) == (HISTORY, REMEMBERED, REMEMBERED)
        assert len(to_document(running(reason="x" * 5000))["trial"]["reason"]) == MAX_TEXT

    def test_words_alone_are_not_worth_a_record(self) -> None:
        assert same_but_for_words(running(), running(reason="another window"))
        assert not same_but_for_words(running(), running(boot=2))


class TestAnEvaluation:
    """The candidate serves, and takes no requests before its answers were found good."""

    LIMIT_S = 1800.0

    def sight(self, verdict: QualityVerdict | None = None, **changes: Any) -> Sight:
        """The candidate serves, and its evaluation has come so far."""
        found = None if verdict is None else Quality(verdict, "score 0.7 beside a baseline of 0.72")
        return sight(**{"candidate": Candidate(serves=True), "check_limit_s": self.LIMIT_S, "quality": found} | changes)

    def checking(self, **changes: Any) -> Revisions:
        started = course.step(SERVED, self.sight(candidate=Candidate())).revisions
        known = course.step(started, self.sight()).revisions
        assert known.trial is not None
        assert (known.trial.stage, known.trial.traffic_since_s) == ("Checking", None)
        return replace(known, trial=replace(known.trial, **changes))

    @pytest.mark.parametrize("verdict", [None, "pending"])
    def test_while_it_runs_the_candidate_is_not_compared(self, verdict: QualityVerdict | None) -> None:
        found = course.step(self.checking(), self.sight(verdict, judgement=told("promote"))).revisions
        assert found.trial is not None
        assert (found.trial.stage, found.trial.judged, found.trial.checked) == ("Checking", False, "")

    def test_answers_that_are_as_good_let_requests_in_and_their_figures_stay(self) -> None:
        found = course.step(self.checking(), self.sight("passed", now_s=NOW_S + 60.0))
        assert [one.reason for one in found.news] == ["CandidateChecked"]
        trial = course.step(found.revisions, self.sight(judgement=told("wait"))).revisions.trial
        assert trial is not None
        assert (trial.stage, trial.traffic_since_s) == ("Running", NOW_S + 60.0)
        assert trial.checked == "score 0.7 beside a baseline of 0.72"

    def test_worse_answers_withdraw_it_and_it_is_not_tried_again_by_itself(self) -> None:
        found = course.step(self.checking(), self.sight("worse"))
        assert ended(found) == ("Withdrawn", "score 0.7 beside a baseline of 0.72")
        assert found.revisions.withdrawn[0].until_s is None

    def test_an_evaluation_that_fails_withdraws_it_for_a_while(self) -> None:
        found = course.step(self.checking(), self.sight("failed"))
        assert ended(found)[0] == "Withdrawn"
        assert found.revisions.withdrawn[0].until_s == NOW_S + RETRY_S

    @pytest.mark.parametrize("verdict", [None, "pending"])
    def test_one_that_says_nothing_in_time_does_so_too_and_names_the_field(
        self, verdict: QualityVerdict | None
    ) -> None:
        late = self.sight(verdict, now_s=NOW_S + self.LIMIT_S + 1.0)
        outcome, reason = ended(course.step(self.checking(), late))
        assert outcome == "Withdrawn"
        assert "within 30 minutes" in reason
        assert "spec.rollout.quality.maxMinutes" in reason

    def test_a_result_that_comes_at_the_last_moment_counts(self) -> None:
        found = course.step(self.checking(), self.sight("passed", now_s=NOW_S + self.LIMIT_S + 1.0))
        assert found.revisions.trial is not None
        assert found.revisions.trial.stage == "Running"

    def test_it_is_asked_once_and_not_of_each_boot(self) -> None:
        known = course.step(self.checking(), self.sight("passed")).revisions
        again = course.step(known, self.sight(judgement=told("wait", restart=True))).revisions
        assert again.trial is not None
        assert (again.trial.stage, again.trial.boot) == ("Starting", 2)
        assert stage_of(course.step(again, self.sight())) == "Running"

    def test_taken_out_of_the_spec_it_is_not_waited_for(self) -> None:
        assert stage_of(course.step(self.checking(), self.sight(check_limit_s=None))) == "Running"

    def test_put_into_the_spec_later_it_takes_no_requests_away(self) -> None:
        assert stage_of(course.step(running(), self.sight())) == "Running"

    def test_two_crashes_withdraw_it_meanwhile(self) -> None:
        assert "crashed 2 times" in ended(course.step(self.checking(), self.sight(candidate=Candidate(crashes=2))))[1]

    def test_its_place_goes_back_to_a_replica_that_the_load_needs(self) -> None:
        needed = self.sight(room=Room(replicas=2, pods=3, most=3, needed=3))
        found = course.step(self.checking(freed=2), needed).revisions.trial
        assert found is not None
        assert (found.stage, found.placed) == ("Waiting", False)

    def test_an_approval_needs_none(self) -> None:
        assert course.step(self.checking(), self.sight(approved=NEW)).rolls

    def test_a_restart_forgets_neither_the_stage_nor_the_figures(self) -> None:
        for known in (self.checking(), course.step(self.checking(), self.sight("passed")).revisions):
            assert from_document(json.loads(json.dumps(to_document(known)))) == (known, None)


def stage_of(found: Step) -> str:
    assert found.revisions.trial is not None
    return found.revisions.trial.stage
