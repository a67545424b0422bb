"""The cases: which load, on which card, from which start, and which stretches of time are measured.

All times are seconds. `QUICK` keeps every kind of case and thins out levels, seeds and lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.policy.load import Clients, Steadily, Visitors
from benchmarks.policy.station import CONTROL_S, SCRAPE_S
from outrider.core.schedule import constant
from outrider.replay.policies import POLICIES
from outrider.replay.virtual import Rendered, read_manifest, render
from outrider.simulator.settings import Speculation
from outrider.simulator.workload import Phase, geometric

MANIFEST = Path(__file__).parent / "service.yaml"
CEILING = 7
USUAL, GOOD, BAD, HOSTILE = 0.75, 0.85, 0.4, 0.1
"""Conditional acceptance of a draft token: that of the measured run; two data sets a drafter likes and does not; text
that no draft fits."""
DRAIN_S = 30.0
"""After a change of level the answers begun before it still run: what they yield belongs to neither level."""
LOW = 4
"""Up to so many requests a load is low."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of everything is played."""

    seeds: Mapping[str, int]
    """By group of cases."""
    warm_up_s: float
    steady_s: float
    """Measured after the warm-up."""
    levels: tuple[int, ...]
    moe_levels: tuple[int, ...]
    hostile_levels: tuple[int, ...]
    stretch_s: float
    """Of each level of a mixed load."""
    shift_levels: tuple[int, ...]
    shift_stretch_s: float
    adapt_levels: tuple[int, ...]
    adapt_s: float
    """Played after a step of acceptance, and some seconds before it."""
    starts: tuple[tuple[int, int], ...]
    """K that engines start with, and the clients that they meet."""
    rates_rps: tuple[float, ...]
    """From a batch of one to saturation."""
    still_hours: float


FULL = Extent(
    seeds={"steady": 5, "adapt": 5, "start": 5, "mixed": 3, "shift": 3, "still": 3, "hostile": 2, "rate": 1},
    warm_up_s=300.0,  # the reach is stated after five minutes
    steady_s=120.0,
    levels=(1, 4, 16, 32, 64, 96, 128, 192, 256),
    moe_levels=(1, 2, 4, 8, 16, 32, 64),
    hostile_levels=(4, 64, 192),
    stretch_s=120.0,
    shift_levels=(1, 4, 16, 48, 96, 160, 256),
    shift_stretch_s=105.0,
    adapt_levels=(4, 16, 64, 128),
    adapt_s=240.0,
    starts=((0, 4), (7, 128)),
    rates_rps=(0.5, 2.0, 6.0, 12.0, 18.0, 24.0),
    still_hours=6.0,
)
QUICK = Extent(
    seeds=dict.fromkeys(FULL.seeds, 1),
    warm_up_s=90.0,
    steady_s=30.0,
    levels=(1, 64, 192),
    moe_levels=(1, 8, 64),
    hostile_levels=(4,),
    stretch_s=60.0,
    shift_levels=(4, 64),
    shift_stretch_s=60.0,
    adapt_levels=(4,),
    adapt_s=165.0,
    starts=((0, 4),),
    rates_rps=(6.0,),
    still_hours=0.5,
)

CONSTANTS = tuple(f"k{k}" for k in range(CEILING + 1))
EVERY = tuple(POLICIES)
STEERED = ("acceptance-threshold", "smartspec", "ema", "oracle", "outrider")
MOE_VALUES = (2, 3, 4, 6)
MOE_LARGEST = 64
"""Batch and K of the published table; nothing outside it was measured."""
CARDS: Mapping[str, tuple[str, ...]] = {
    "measured": EVERY,
    "no-jump": (*CONSTANTS, "vllm-table", "smartspec", "oracle", "outrider"),
    "moe": (*(f"k{k}" for k in MOE_VALUES), "smartspec", "oracle", "outrider"),
}
"""Arms of the mixed load on each card."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A measured stretch and what it stands for."""

    since_s: float
    until_s: float
    level: float
    """Clients, or requests a second."""


@dataclass(frozen=True, slots=True)
class Case:
    """One load on one card with one seed."""

    name: str
    group: str
    seed: int
    load: Clients | Visitors | Steadily
    warm_up_s: float
    duration_s: float
    segments: tuple[Segment, ...]
    arms: tuple[str, ...]
    card: str = "measured"
    """``measured``, ``no-jump`` (the same without the cost of leaving the captured graphs) or ``moe``."""
    initial: int | None = None
    """K that the resource asks engines to start with; its default without."""
    shift_s: float | None = None
    """When acceptance steps, where the time to follow it is asked for."""


def service(card: str = "measured", initial: int | None = None) -> Rendered:
    """The service of the benchmark as the operator understands it; ``initial`` is K that engines are to start with."""
    manifest = read_manifest(MANIFEST)
    if initial is not None:
        manifest["spec"]["speculation"]["tuning"] = {"initialSpeculativeTokens": initial}
    rendered = render(manifest, CONTROL_S)
    return _as_published(rendered) if card == "moe" else rendered


def _as_published(rendered: Rendered) -> Rendered:
    """The engine of the mixture-of-experts table: the K and the batches that were published, not our graphs."""
    start = constant(3, MOE_LARGEST)
    assert rendered.settings.plugin is not None
    settings = replace(
        rendered.settings,
        speculation=Speculation("eagle", max(MOE_VALUES), start, MOE_VALUES),
        max_num_seqs=MOE_LARGEST,
        plugin=replace(rendered.settings.plugin, initial_schedule=start),
    )
    config = replace(
        rendered.config,
        values=MOE_VALUES,
        min_speculative_tokens=min(MOE_VALUES),
        max_batch_size=MOE_LARGEST,
        initial=start,
    )
    return replace(rendered, config=config, settings=settings)


def cases(extent: Extent) -> list[Case]:
    """All of them, the longest first so that the workers end together."""
    kinds = (_still, _mixed, _shift, _steady, _rates, _adapt, _wrong_start)
    found = [
        case
        for seed in range(max(extent.seeds.values()))
        for kind in kinds
        for case in kind(seed, extent)
        if seed < extent.seeds[case.group]
    ]
    return sorted(found, key=lambda case: -case.duration_s)


def _curve(acceptance: float) -> tuple[float, ...]:
    return geometric(acceptance, CEILING)


def _always(level: int, acceptance: float) -> Clients:
    return Clients(((0.0, level),), (Phase(0.0, _curve(acceptance)),))


def _steady(seed: int, extent: Extent) -> Iterator[Case]:
    """One level for the whole time; the usual acceptance, and one that makes every draft a waste."""
    since_s, end_s = extent.warm_up_s, extent.warm_up_s + extent.steady_s
    for acceptance, name, levels in ((USUAL, "steady", extent.levels), (HOSTILE, "hostile", extent.hostile_levels)):
        for level in levels:
            segments = (Segment(since_s, end_s, level),)
            yield Case(f"{name}-{level}", name, seed, _always(level, acceptance), since_s, end_s, segments, EVERY)


def _in_turn(
    seed: int, extent: Extent, levels: Sequence[int], halves: Sequence[float], stretch_s: float
) -> tuple[Clients, tuple[Segment, ...]]:
    """A warm-up at a middling level, then every level once for each acceptance of ``halves``, in an order of the
    seed's."""
    rng, now_s = np.random.default_rng((seed, 3)), extent.warm_up_s
    steps, phases, segments = [(0.0, 16)], [Phase(0.0, _curve(halves[0]))], []
    for acceptance in halves:
        if phases[-1].acceptance != _curve(acceptance):
            phases.append(Phase(now_s + DRAIN_S, _curve(acceptance)))
        for level in rng.permutation(levels):
            steps.append((now_s, int(level)))
            segments.append(Segment(now_s + DRAIN_S, now_s + stretch_s, int(level)))
            now_s += stretch_s
    return Clients(tuple(steps), tuple(phases)), tuple(segments)


def _mixed(seed: int, extent: Extent) -> Iterator[Case]:
    """Every level from 1 to the largest in turn: what one schedule for all of them is worth."""
    for card, arms in CARDS.items():
        levels = extent.moe_levels if card == "moe" else extent.levels
        load, segments = _in_turn(seed, extent, levels, (USUAL,), extent.stretch_s)
        end_s = segments[-1].until_s
        yield Case(f"mixed-{card}", "mixed", seed, load, extent.warm_up_s, end_s, segments, arms, card)


def _shift(seed: int, extent: Extent) -> Iterator[Case]:
    """The same, and in the middle another data set arrives."""
    for name, halves in (("down", (GOOD, BAD)), ("up", (BAD, GOOD))):
        load, segments = _in_turn(seed, extent, extent.shift_levels, halves, extent.shift_stretch_s)
        end_s = segments[-1].until_s
        yield Case(f"shift-{name}", "shift", seed, load, extent.warm_up_s, end_s, segments, EVERY)


def _adapt(seed: int, extent: Extent) -> Iterator[Case]:
    """One level, one step of acceptance, somewhere between two scrapes."""
    step_s = extent.warm_up_s + SCRAPE_S * float(np.random.default_rng((seed, 4)).random())
    end_s = extent.warm_up_s + extent.adapt_s
    for level in extent.adapt_levels:
        for name, before, after in (("down", GOOD, BAD), ("up", BAD, GOOD)):
            phases = (Phase(0.0, _curve(before)), Phase(step_s, _curve(after)))
            load = Clients(((0.0, level),), phases, output_tokens=(100, 300))
            case = f"adapt-{name}-{level}"
            yield Case(case, "adapt", seed, load, extent.warm_up_s, end_s, (), STEERED, shift_s=step_s)


def _wrong_start(seed: int, extent: Extent) -> Iterator[Case]:
    """Engines that start with a K far from the best one."""
    warm_s = extent.warm_up_s
    for initial, level in extent.starts:
        ends = (0.0, 60.0, warm_s, warm_s + 60.0)
        segments = tuple(Segment(since_s, until_s, level) for since_s, until_s in pairwise(ends))
        case, load = f"start-k{initial}-{level}", _always(level, USUAL)
        yield Case(case, "start", seed, load, warm_s, ends[-1], segments, ("oracle", "outrider"), initial=initial)


def _rates(seed: int, extent: Extent) -> Iterator[Case]:
    """Evenly spaced arrivals, from idle to saturation."""
    since_s, end_s = extent.warm_up_s, extent.warm_up_s + extent.steady_s
    for rate in extent.rates_rps:
        load = Steadily(rate, 600, _curve(USUAL))
        yield Case(f"rate-{rate:g}", "rate", seed, load, since_s, end_s, (Segment(since_s, end_s, rate),), EVERY)


def _still(seed: int, extent: Extent) -> Iterator[Case]:
    """Hours of one mean rate, Poisson arrivals, requests of three classes of acceptance: nothing to follow."""
    rate = (10.0, 2.0, 18.0, 6.0, 14.0)[seed]
    since_s, end_s = extent.warm_up_s, extent.warm_up_s + extent.still_hours * 3600.0
    load, segments = Visitors(rate, 400, (0.6, 0.75, 0.9), CEILING), (Segment(since_s, end_s, rate),)
    yield Case(f"still-{rate:g}", "still", seed, load, since_s, end_s, segments, ("outrider",))
