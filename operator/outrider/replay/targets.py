"""The autoscaler's target for a policy that sets none: what a careful team would find by a load test.

The load on one replica is raised until the objective's percentile is missed; nine tenths of the requests in flight that
still met it are the target (`outrider.core.capacity` leaves the same tenth).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import ceil, inf

from outrider.core.capacity import TOLERANCE
from outrider.replay.load import Load
from outrider.replay.virtual import Rendered
from outrider.simulator.fleet import Fleet, FleetConfig
from outrider.simulator.profile import Profile
from outrider.simulator.request import Request
from outrider.simulator.results import FleetResult
from outrider.simulator.settings import EngineSettings

TEST_S, WARM_UP_S, TAIL_S = 60.0, 20.0, 60.0
HALVINGS = 5
"""Of the rates between nothing and `HIGHEST_RPS`: within 0.4 requests a second."""
HIGHEST_RPS = 24.0


def hand_set_target(rendered: Rendered, settings: EngineSettings, profile: Profile, load: Load) -> int:
    """Requests in flight at the highest rate at which one such engine meets the objective, less a tenth.

    The test is made with the load's first requests, as many as the rate asks for, their times stretched to it: bursts
    and lengths stay. Nobody knows of a shift of acceptance before it comes.
    """
    before = replace(load, shifts=(), duration_s=max(load.duration_s, HIGHEST_RPS * TEST_S))
    requests = list(islice(before.requests(settings.max_model_len), ceil(HIGHEST_RPS * TEST_S)))
    low, high, carried = 0.0, HIGHEST_RPS, 1.0
    for _ in range(HALVINGS):
        rate_rps = (low + high) / 2
        fleet = Fleet(FleetConfig(settings, profile, tail_s=TAIL_S, seed=load.seed))
        result = fleet.run(_at_rate(requests, rate_rps), TEST_S)
        if _meets(rendered, result):
            low, carried = rate_rps, _in_flight(result)
        else:
            high = rate_rps
    return max(1, int((1.0 - TOLERANCE) * carried))


def _at_rate(requests: Sequence[Request], rate_rps: float) -> Iterator[Request]:
    """The first requests, so many that they fill `TEST_S` seconds at a mean rate."""
    taken = requests[: max(2, round(rate_rps * TEST_S))]
    start_s, span_s = taken[0].arrival_s, max(taken[-1].arrival_s - taken[0].arrival_s, 1e-9)
    for one in taken:
        yield replace(one, arrival_s=(one.arrival_s - start_s) / span_s * TEST_S * (1 - 1 / len(taken)))


def _meets(rendered: Rendered, result: FleetResult) -> bool:
    resolved = rendered.resolved
    share = result.slo_attainment(
        tpot_s=inf if resolved.tpot_s is None else resolved.tpot_s,
        ttft_s=inf if resolved.ttft_s is None else resolved.ttft_s,
    )
    return share >= resolved.percentile


def _in_flight(result: FleetResult) -> float:
    steady = [one for one in result.timeline if WARM_UP_S <= one.time_s <= TEST_S]
    return sum(one.running + one.waiting for one in steady) / len(steady)
