"""Users, loads and faults at random against the operator, a real API server, KEDA, Prometheus and simulated engines.

The short form of `make chaos`, which plays ten thousand steps, or as many as fit into ``CHAOS_SECONDS``. Acts of a
hundred steps: each begins with nothing, and ends with all faults taken out, all services as they should be, and all of
them deleted.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.testbed.chaos import COLLECTED_AFTER_S, LIES, NAMES, Stage, stage_on
from tests.testbed.chaos_watch import Watch
from tests.testbed.fixtures import StartCluster

ACT = 100
"""Steps between two ends of all faults."""
PAUSE_S = 0.1
"""After each step, beside what it takes to look at everything."""
SPOILT = {"extraArgs": ["--mod", "other"]}
SERVICES = st.sampled_from(NAMES)
MODES = ("Adaptive", "Adaptive", "Adaptive", "Observe", "Fixed", "Off")
TEMPLATE = {"spec": {"template": {"metadata": {"annotations": {"somebody": "else"}}}}}
TAMPERED: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
    ("configmap", "-schedule", None),
    ("configmap", "-memory", None),
    ("configmap", "-memory", {"data": {"memory.json": '{"version": 1, "generation": NaN'}}),
    ("configmap", "-schedule", {"data": {"schedule.json": "{}"}}),
    ("secret", "-admin", None),
    ("service", "", None),
    ("service", "", {"spec": {"selector": {"serving.outrider.dev/service": "nobody"}}}),
    ("poddisruptionbudget", "", None),
    ("podmonitor", "", None),
    ("scaledobject", "", None),
    ("scaledobject", "", {"spec": {"maxReplicaCount": 2}}),
    ("serviceaccount", "", None),
)
"""Children by kind and the end of their name, and what somebody does to them: deletes them, or changes this."""


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Blocks of a spec, as its user may change them from one moment to the next; most changes keep the engines."""
    mode, least = draw(st.sampled_from(MODES)), draw(st.integers(1, 2))
    tuning: dict[str, Any] = {"mode": mode, "policy": draw(st.sampled_from(("Goodput", "AcceptanceThreshold")))}
    if mode == "Fixed":
        tuning["initialSpeculativeTokens"] = draw(st.integers(0, 5))
    else:
        tuning["minSpeculativeTokens"] = draw(st.integers(0, 3))
    spec: dict[str, Any] = {
        "tuning": tuning,
        "autoscaling": {"minReplicas": least, "maxReplicas": least + draw(st.integers(0, 3))},
        "objectives": {"tpotMilliseconds": draw(st.sampled_from((15, 40, 400))), "ttftMilliseconds": 2000},
    }
    if draw(st.integers(0, 5)) == 0:
        spec["autoscaling"] = {"mode": "Off", "minReplicas": least}
    if draw(st.integers(0, 7)) == 0:
        spec["networkPolicy"] = {"enabled": True}
    return spec


SINGLE = {
    "nothing": st.tuples(st.sampled_from((0.1, 0.3, 1.0))),
    "apply": st.tuples(SERVICES, specs()),
    "pause": st.tuples(SERVICES, st.booleans()),
    "roll_out": st.tuples(SERVICES, st.sampled_from((128, 256))),
    "sabotage": st.tuples(SERVICES, st.sampled_from(("CRASH", "HANG"))),
    "spoil": st.tuples(SERVICES),
    "delete": st.tuples(SERVICES),
    "load": st.tuples(SERVICES, st.sampled_from((0, 2, 12, 40)), st.sampled_from((0.0, 0.3, 0.6, 0.9))),
    "prometheus": st.tuples(st.sampled_from(("", "", *LIES))),
    "end_operator": st.tuples(st.sampled_from((signal.SIGKILL, signal.SIGTERM))),
    "start_operator": st.tuples(),
    "freeze": st.tuples(st.booleans()),
    "tamper": st.tuples(SERVICES, st.sampled_from(TAMPERED)),
    "evict": st.tuples(SERVICES, st.integers(0, 3)),
    "stand": st.tuples(st.sampled_from((0.5, 2.0))),
}
"""What may be played, each a method of `Chaos`, with its arguments."""
OFTEN = ("nothing", "apply", "apply", "load", "load", "start_operator", "tamper")
STEPS = st.one_of([st.tuples(st.just(name), SINGLE[name]) for name in (*SINGLE, *OFTEN)])


class Chaos(RuleBasedStateMachine):
    """One rule, since of several hypothesis leaves most out of an act. A step that has nothing to do in a state does
    nothing, so that a seed plays the same steps each time."""

    stage: Stage
    watch: Watch
    acts = steps = 0
    fault: BaseException | None = None

    def __init__(self) -> None:
        super().__init__()
        found = type(self)
        if found.fault is not None:
            raise found.fault  # hypothesis plays what failed once more: that cluster is no more
        found.acts += 1
        self.played = found.acts > 1

    @initialize(first=specs(), second=specs())
    def begin(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        for name, spec in zip(NAMES, (first, second), strict=False):
            self._play("apply", (name, spec))
            self._play("load", (name, 12, 0.8))

    @rule(what=STEPS)
    def step(self, what: tuple[str, tuple[Any, ...]]) -> None:
        self._play(*what)

    @invariant()
    def holds(self) -> None:
        if self.played:
            with self._noted():
                self.watch.look()

    def _play(self, name: str, arguments: tuple[Any, ...]) -> None:
        if not self.played:
            return
        type(self).steps += 1
        time.sleep(PAUSE_S)
        with self._noted():
            self.stage.note(f"{name} {' '.join(map(str, arguments))}")
            getattr(self, f"_{name}")(*arguments)

    def _nothing(self, seconds: float) -> None:
        time.sleep(seconds)

    def _apply(self, name: str, spec: dict[str, Any]) -> None:
        self.stage.put(name, spec)

    def _pause(self, name: str, paused: bool) -> None:
        self._change(name, paused=paused)

    def _roll_out(self, name: str, batch: int) -> None:
        self._change(name, engine={"maxNumSeqs": batch})

    def _sabotage(self, name: str, what: str) -> None:
        self._change(name, engine={"env": [{"name": f"SIMULATOR_{what}_AFTER_SECONDS", "value": "6"}]})

    def _spoil(self, name: str) -> None:
        """What the schema admits and the operator refuses."""
        self._change(name, engine=SPOILT)

    def _change(self, name: str, **blocks: Any) -> None:
        wish = self.stage.wishes.get(name)
        if wish is not None:
            self.stage.put(name, wish.spec | blocks)

    def _delete(self, name: str) -> None:
        ready = time.monotonic() > self.stage.began_s + COLLECTED_AFTER_S
        if name in self.stage.wishes and ready and not self.stage.frozen:
            self.stage.delete(name)

    def _load(self, name: str, requests: int, acceptance: float) -> None:
        if name in self.stage.wishes:
            self.stage.load(name, requests, acceptance)

    def _prometheus(self, lie: str) -> None:
        if lie != self.stage.store.lie:
            self.stage.tell(lie)

    def _end_operator(self, number: signal.Signals) -> None:
        if self.stage.running:
            self.stage.end(number)

    def _start_operator(self) -> None:
        if not self.stage.running:
            self.stage.begin()

    def _freeze(self, yes: bool) -> None:
        if yes != self.stage.frozen:
            self.stage.freeze(yes)

    def _tamper(self, name: str, what: tuple[str, str, dict[str, Any] | None]) -> None:
        if name in self.stage.wishes:
            kind, end, change = what
            self.stage.tamper(name, kind, name + end, change)

    def _evict(self, name: str, number: int) -> None:
        pods = self.stage.wishes[name].view.pods() if name in self.stage.wishes else []
        if pods:
            self.stage.tamper(name, "pod", pods[number % len(pods)]["metadata"]["name"], None)

    def _stand(self, seconds: float) -> None:
        """All connections of the API server stand still; nobody is told."""
        self.stage.signal("kube-apiserver", signal.SIGSTOP)
        time.sleep(seconds)
        self.stage.signal("kube-apiserver", signal.SIGCONT)

    def teardown(self) -> None:
        """All faults end, and then all is well."""
        if self.played and type(self).fault is None:
            with self._noted():
                self._end()

    def _end(self) -> None:
        stage = self.stage
        stage.note("all faults end")
        stage.heal()
        for name, wish in stage.wishes.items():
            if wish.spec.keys() & {"engine", "paused"}:
                stage.put(name, {key: value for key, value in wish.spec.items() if key not in ("engine", "paused")})
        self.watch.settle()
        if time.monotonic() > stage.began_s + COLLECTED_AFTER_S:
            for name in list(stage.wishes):
                stage.delete(name)
            self.watch.gone()
        stage.note("the act ends")

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except BaseException as fault:
            type(self).fault = type(self).fault or fault
            self.stage.note(f"FAILED: {fault}")
            self.stage.keep()
            raise


@pytest.fixture(scope="module")
def stage(start_cluster: StartCluster) -> Iterator[Stage]:
    with stage_on(start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=4)) as stage:
        yield stage


def test_nobody_is_harmed_whatever_is_played(stage: Stage, request: pytest.FixtureRequest) -> None:
    options = request.config.option
    watch, began_s, steps, seed = Watch(stage), time.monotonic(), 0, options.chaos_seed
    until_s = None if options.chaos_seconds is None else began_s + options.chaos_seconds
    try:
        while time.monotonic() < until_s if until_s else steps < options.chaos_steps:
            steps += _act(stage, watch, seed, min(options.chaos_steps, ACT))
            seed += 1
    finally:
        figures = dict(watch.counts) | {
            "steps": steps,
            "seconds": round(time.monotonic() - began_s),
            "operator MiB at most": round(watch.most_mib),
            "seconds to converge at most": round(watch.longest_s),
        }
        print(f"chaos, acts of seeds {options.chaos_seed} to {seed}: {figures}")  # noqa: T201
    assert watch.counts["engines"] > 0


def _act(stage: Stage, watch: Watch, seed: int, steps: int) -> int:
    """Play so many steps and their end; a failure names the seed of its act."""
    play: type[Chaos] = type("Chaos", (Chaos,), {"stage": stage, "watch": watch})
    limits = hypothesis.settings(
        max_examples=2,  # the first is the first step over and over, and is not played
        stateful_step_count=steps,
        phases=[Phase.generate],  # no other run would meet the cluster in the same state
        suppress_health_check=list(HealthCheck),
        database=None,
        print_blob=False,
    )
    stage.note(f"an act begins: --chaos-steps {steps} --chaos-seed {seed}")
    try:
        run_state_machine_as_test(hypothesis.seed(seed)(play), settings=limits)
    except BaseException as error:
        fault = play.fault or error  # rather than hypothesis' words about what it could not repeat
        again, kept = f"--chaos-steps {steps} --chaos-seed {seed}", "and all that there was beside them"
        fault.add_note(f"play it again: {again}; steps are in {stage.journal}, {kept}")
        raise fault from None
    return play.steps
