"""Drafts of a service, window by window, as a stand-in for traffic: how soon a change is seen, and how often noise is
taken for one.

A draft token is accepted with one conditional probability, alpha, which wanders from window to window as the mixture of
requests does. Drafts come in groups that share their fate, so that counts scatter more than those of independent ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np

from outrider.core.acceptance import AcceptanceState, update

WINDOW_S = 15.0
Window = tuple[tuple[float, ...], tuple[float, ...]]
"""Drafted and accepted by position."""


@dataclass(frozen=True)
class Traffic:
    """Kind of traffic; ``drafts`` a window, in groups of ``group``, whose alpha has an AR(1) wander around its mean."""

    drafts: int = 8_000
    k: int = 3
    group: int = 4
    wander: float = 0.01
    memory: float = 0.5

    def windows(self, alpha: Callable[[int], float], seed: int) -> Iterator[Window]:
        """Endless windows; ``alpha`` by number of the window, from 0."""
        random = np.random.default_rng(seed)
        number, offset = 0, 0.0
        while True:
            fresh = float(random.normal()) * self.wander * (1.0 - self.memory**2) ** 0.5
            offset = self.memory * offset + fresh
            chance = min(0.999, max(0.0, alpha(number) + offset))
            alive, accepted = self.drafts // self.group, []
            for _ in range(self.k):
                alive = int(random.binomial(alive, chance))
                accepted.append(float(alive * self.group))
            yield (float(self.drafts // self.group * self.group),) * self.k, tuple(accepted)
            number += 1


def jumps(traffic: Traffic, alpha: Callable[[int], float], windows: int, seed: int) -> list[int]:
    """Numbers of the windows in which an alarm was raised."""
    state, found = AcceptanceState(), []
    for number, (drafted, accepted) in zip(range(windows), traffic.windows(alpha, seed), strict=False):
        state, jumped = update(state, drafted, accepted, WINDOW_S)
        if jumped:
            found.append(number)
    return found


LEAD = 40
"""Windows before a step: ten minutes of steady traffic."""


def delays(traffic: Traffic, before: float, after: float, seeds: int, within: int = 40) -> list[int]:
    """Windows from a step to its alarm, the window that found it included; ``within`` where it was not found."""
    found = []
    for seed in range(seeds):
        alarms = jumps(traffic, lambda number: before if number < LEAD else after, LEAD + within, seed)
        found.append(next((number - LEAD + 1 for number in alarms if number >= LEAD), within))
    return found


def false_alarms(traffic: Traffic, alpha: float, windows: int, seed: int = 0) -> int:
    """Alarms in steady traffic."""
    return len(jumps(traffic, lambda _: alpha, windows, seed))


def table(seeds: int = 200, windows: int = 20_000) -> str:
    """Delays of two steps down and one up, and hours between false alarms, for kinds of traffic."""
    kinds = {
        "ideal noise, 8,000 drafts": Traffic(group=1, wander=0.0),
        "groups of 4, 8,000 drafts": Traffic(wander=0.0),
        "groups of 4, wander 0.01": Traffic(),
        "groups of 20, wander 0.02, 30,000 drafts": Traffic(drafts=30_000, group=20, wander=0.02),
        "groups of 4, wander 0.02, slow": Traffic(wander=0.02, memory=0.9),
        "groups of 4, 400 drafts": Traffic(drafts=400),
        "groups of 4, K 1": Traffic(k=1),
        "groups of 4, K 5, wander 0.02": Traffic(k=5, wander=0.02),
    }
    lines = [f"{'traffic':42} {'0.75→0.55':>10} {'0.75→0.65':>10} {'0.55→0.75':>10} {'h/false':>8}"]
    for name, traffic in kinds.items():
        steps = []
        for before, after in ((0.75, 0.55), (0.75, 0.65), (0.55, 0.75)):
            found = sorted(delays(traffic, before, after, seeds))
            steps.append(f"{median(found):.0f} / {found[int(0.95 * seeds)]}")
        alarms = false_alarms(traffic, 0.75, windows)
        hours = windows * WINDOW_S / 3600.0
        spacing = f"{hours / alarms:.1f}" if alarms else f"> {hours:.0f}"
        lines.append(f"{name:42} {steps[0]:>10} {steps[1]:>10} {steps[2]:>10} {spacing:>8}")
    return "\n".join(lines)
