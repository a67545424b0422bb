"""The simulator's fleet under the virtual operator, narrated: what only counters, processes and routers can play."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.core.observation import observe
from outrider.core.series import Series
from outrider.replay.virtual import SAMPLE, VirtualOperator, read_manifest, render
from outrider.simulator.faults import Fault
from outrider.simulator.fleet import Commands, Fleet, FleetConfig
from outrider.simulator.profile import load_profile
from outrider.simulator.results import FleetResult
from outrider.simulator.workload import constant_rate

from .narrator import Narrator

PERIOD_S = 15.0
WINDOW_S = 30.0


@dataclass
class Narrated:
    """The virtual operator with somebody who takes notes."""

    operator: VirtualOperator
    narrator: Narrator = field(default_factory=Narrator)
    lengths: list[tuple[float, float]] = field(default_factory=list)
    """Time, and the estimate of tokens a step."""

    def control(self, now_s: float, series: Sequence[Series], replicas: int) -> Commands:
        """One pass, noted."""
        commands = self.operator.control(now_s, series, replicas)
        assert self.operator.outcome is not None
        self.narrator.tell(now_s, observe(series, now_s - WINDOW_S, now_s), self.operator.outcome)
        estimate = self.operator.outcome.acceptance_length
        if estimate is not None:
            self.lengths.append((now_s, estimate.value))
        return commands


def play(
    *faults: Fault, replicas: int = 2, rate_rps: float = 8.0, duration_s: float = 225.0
) -> tuple[Narrated, FleetResult]:
    """A steady stream of like requests, and what goes wrong meanwhile."""
    rendered = render(read_manifest(SAMPLE), PERIOD_S)
    narrated = Narrated(VirtualOperator(rendered.config, WINDOW_S))
    settings = FleetConfig(
        rendered.settings, load_profile(), replicas=replicas, window_s=WINDOW_S, faults=faults, pod_start_s=30.0
    )
    requests = constant_rate(rate_rps, duration_s, prompt_tokens=300, output_tokens=200)
    result = Fleet(settings, narrated).run(requests, duration_s)
    return narrated, result
