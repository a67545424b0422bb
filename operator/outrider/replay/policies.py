"""Who may steer a replayed service: Outrider, the rules of other systems, and a bound on what any of them can reach.

Every rule but the oracle's sees what engines export and nothing else, once a control period. Rules that their authors
run inside an engine, at every step, are restated here for that time scale; each class says how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from outrider.core.observation import Observation, observe
from outrider.core.schedule import Row, Schedule, from_lookup, from_rows
from outrider.core.series import Missing, Series
from outrider.replay.virtual import Rendered, VirtualOperator
from outrider.simulator.fleet import Commands, Controller
from outrider.simulator.profile import Profile
from outrider.simulator.request import extended
from outrider.simulator.settings import EngineSettings, Speculation, default_capture_sizes

TrueAcceptance = Callable[[float], Sequence[float]]
"""The acceptance by position, unconditional, of the requests that arrive at a moment in seconds."""

MOST = 7
"""The longest constant draft among the arms."""

POLICIES: Mapping[str, str] = {
    "no-drafter": "an engine started without speculation",
    "k0": "K 0 at every batch size, with the drafter loaded",
    **{f"k{k}": f"K {k} at every batch size: vLLM with num_speculative_tokens {k}" for k in range(1, MOST + 1)},
    "vllm-table": "the EAGLE table of vLLM's documentation: 3 up to batch 64, 1 up to 128, then 0",
    "acceptance-threshold": "raise above 75 % accepted, lower under 60 %, off under 40 % (AcceptanceThreshold)",
    "smartspec": "SmartSpec's goodput rule: one i.i.d. acceptance, profiled times, off unless 10 % better (2406.14066)",
    "ema": "SGLang's adaptive steps: accepted length against tiers by batch size, with hysteresis (PR 23336)",
    "oracle": "the best K at each batch size by the true step times and the true acceptance of the moment",
    "outrider": "Outrider's own control law (Goodput)",
}
"""Every arm by name, with its rule and its source in a line."""


@dataclass(frozen=True, slots=True)
class Arm:
    """An engine and who steers it."""

    name: str
    settings: EngineSettings
    controller: Controller | None
    """Fresh, for one replay; None where nothing ever changes."""


def available(rendered: Rendered) -> tuple[str, ...]:
    """The arms that a resource allows: constants up to its ceiling."""
    ceiling = rendered.settings.max_speculative_tokens
    return tuple(name for name in POLICIES if not _is_constant(name) or int(name[1:]) <= ceiling)


def arm(name: str, rendered: Rendered, profile: Profile, acceptance: TrueAcceptance, *, window_s: float = 60.0) -> Arm:
    """One arm of `POLICIES` for a rendered resource.

    ``profile`` are the true step times, read by the two rules that profile (SmartSpec and the oracle); ``acceptance``
    is the oracle's alone. ``window_s`` is the length of the window that decisions look at.

    Raises:
        ValueError: there is no such arm, or the resource's ceiling is below its K.
    """
    if name not in available(rendered):
        raise ValueError(f"no policy {name!r} here; choose from {', '.join(available(rendered))}")
    settings, config = rendered.settings, rendered.config
    if name == "no-drafter":
        return Arm(name, replace(_plain(settings, 0), speculation=None), None)
    if name == "k0":
        return Arm(name, rendered.with_constant(0), None)
    if _is_constant(name):
        return Arm(name, _plain(settings, int(name[1:])), None)
    if name == "vllm-table":
        table = _clamped(VLLM_TABLE, config.values, config.max_batch_size)
        return Arm(name, _starting_with(settings, table), None)
    return Arm(name, settings, _controller(name, rendered, profile, acceptance, window_s))


def _controller(
    name: str, rendered: Rendered, profile: Profile, acceptance: TrueAcceptance, window_s: float
) -> Controller:
    config = rendered.config
    if name == "outrider":
        return VirtualOperator(config, window_s)
    if name == "acceptance-threshold":
        return ScheduleOnly(VirtualOperator(replace(config, policy="AcceptanceThreshold"), window_s))
    times = StepTable(profile, rendered.settings, config.allowed)
    if name == "oracle":
        return Oracle(times, acceptance, window_s)
    if name == "smartspec":
        return SmartSpec(times, window_s)
    return AcceptedLength(config.allowed, config.initial, config.period_s)


def _is_constant(name: str) -> bool:
    return name[1:].isdigit()


# Engines of the arms.

VLLM_TABLE = ((1, 64, 3), (65, 128, 1), (129, 512, 0))
"""First and last batch size and K: what vLLM's documentation of dynamic speculation shows for EAGLE, Llama-3.1-8B."""


def _plain(settings: EngineSettings, k: int) -> EngineSettings:
    """vLLM as it is started without us: one K, no table, no plugin, its own CUDA-graph sizes."""
    method = settings.speculation.method if settings.speculation is not None else ""
    return replace(
        settings,
        speculation=Speculation(method, k, None),
        capture_sizes=default_capture_sizes(settings.max_num_seqs, k),
        plugin=None,
    )


def _starting_with(settings: EngineSettings, table: Schedule) -> EngineSettings:
    assert settings.plugin is not None
    return replace(settings, plugin=replace(settings.plugin, initial_schedule=table))


def _clamped(rows: Sequence[tuple[int, int, int]], values: Sequence[int], max_batch_size: int) -> Schedule:
    """A published table on an engine with graphs for some K only: the next smaller one takes a missing one's place."""
    return from_rows(
        Row(first, min(last, max_batch_size), max(k for k in values if k <= wanted))
        for first, last, wanted in rows
        if first <= max_batch_size
    )


# Rules.


class StepTable:
    """The true decode-only step times by K and batch size, as an off-line profile of the engine would find them."""

    def __init__(self, profile: Profile, settings: EngineSettings, values: Sequence[int]) -> None:
        self.values = tuple(values)
        self.context_s = profile.context_s
        rows = [profile.base_times_s(k, settings.max_num_seqs, settings.capture_size)[1:] for k in values]
        self.seconds: NDArray[np.float64] = np.array(rows)
        """Shape ``(len(values), max_num_seqs)``, without context."""

    def best(self, lengths: Sequence[float], context: float, *, off: float = 1.0) -> Schedule:
        """The K of highest token goodput at each batch size.

        ``lengths[k]`` are tokens a request and step at K = k; ``context`` is the mean number of cached tokens of a
        request; ``off`` multiplies the goodput of K = 0.
        """
        sizes = np.arange(1, self.seconds.shape[1] + 1)
        seconds = self.seconds + self.context_s * context * sizes
        length = np.array([lengths[k] * (off if k == 0 else 1.0) for k in self.values])
        best = np.argmax(length[:, None] / seconds, axis=0)
        return from_lookup([self.values[index] for index in best])


class _Rule:
    """A schedule from what was seen; missing metrics leave it as it is."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s

    def control(self, now_s: float, series: Sequence[Series], replicas: int) -> Commands:  # noqa: ARG002
        """One pass."""
        window = observe(series, now_s - self._window_s, now_s)
        return Commands() if isinstance(window, Missing) else Commands(self.schedule(window))

    def schedule(self, window: Observation) -> Schedule:
        """What is to be run from now on."""
        raise NotImplementedError


class Oracle:
    """The bound: true times and the true acceptance of this moment; only the mean context is read from the engines."""

    def __init__(self, times: StepTable, acceptance: TrueAcceptance, window_s: float) -> None:
        self._times, self._acceptance, self._window_s = times, acceptance, window_s

    def control(self, now_s: float, series: Sequence[Series], replicas: int) -> Commands:  # noqa: ARG002
        """The best K at each batch size."""
        window = observe(series, now_s - self._window_s, now_s)
        curve = extended(self._acceptance(now_s), max(self._times.values))
        lengths = [1.0, *(1.0 + total for total in accumulate(curve))]
        return Commands(self._times.best(lengths, 0.0 if isinstance(window, Missing) else mean_context(window)))


class SmartSpec(_Rule):
    """Goodput by one i.i.d. acceptance probability and profiled times, as SmartSpec (TurboSpec) computes it.

    It decides at every step in its engine; the table by batch size does the same here, since its inputs but the batch
    size only move with the window. Its probability is that of one draft whose predecessors were all accepted.
    """

    START, FLOOR, RESET = 0.7, 0.3, 0.65
    """The probability at the start; below the floor it is set to the third one, so that speculation is tried again."""
    OFF = 1.1
    """Factor on the goodput of K = 0: on only for a gain of a tenth."""

    def __init__(self, times: StepTable, window_s: float) -> None:
        super().__init__(window_s)
        self._times, self._alpha = times, self.START

    def schedule(self, window: Observation) -> Schedule:
        """The K of highest goodput at each batch size."""
        # A draft is tried when all before it were accepted.
        tried = window.num_drafts + sum(
            min(accepted, drafted)
            for accepted, drafted in zip(window.accepted_per_pos, window.drafted_per_pos[1:], strict=False)
        )
        if tried > 0:
            self._alpha = min(0.999, sum(window.accepted_per_pos) / tried)
        if self._alpha < self.FLOOR:
            self._alpha = self.RESET
        alpha = self._alpha
        lengths = [(1.0 - alpha ** (k + 1)) / (1.0 - alpha) for k in range(max(self._times.values) + 1)]
        return self._times.best(lengths, mean_context(window), off=self.OFF)


class AcceptedLength(_Rule):
    """SGLang's adaptive steps: an average of the accepted length moves K along the tiers of the batch size's slot.

    There an average over some five verified batches decides every five batches; a control period holds hundreds, so the
    mean of the period stands for the average, and each pass moves one tier in the slot where the service runs.
    """

    TIERS: Mapping[int, tuple[int, ...]] = {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}
    """First batch size of a slot and its steps: SGLang's defaults."""
    DOWN, DOWN_TO_OFF, UP = -0.75, 0.5, -0.5
    """K falls at an accepted length up to the lower tier and the first of these (to 0: up to the second), and rises
    above its own tier and the third."""

    def __init__(self, allowed: Sequence[int], initial: Schedule, period_s: float) -> None:
        super().__init__(period_s)
        self._last = initial.max_batch_size
        self._tiers = {
            first: tuple(k for k in tiers if k in allowed) or (min(allowed),)
            for first, tiers in self.TIERS.items()
            if first <= self._last
        }
        self._k = {
            first: min(tiers, key=lambda k, first=first: abs(k - initial.at(first)))  # type: ignore[misc]
            for first, tiers in self._tiers.items()
        }

    def schedule(self, window: Observation) -> Schedule:
        """The steps of all slots, the present one moved by at most a tier."""
        slot = max(first for first in self._tiers if first <= window.median_batch)
        self._k[slot] = self._moved(self._tiers[slot], self._k[slot], window)
        lasts = [*(first - 1 for first in list(self._k)[1:]), self._last]
        return from_rows(Row(first, last, k) for (first, k), last in zip(self._k.items(), lasts, strict=True))

    def _moved(self, tiers: Sequence[int], k: int, window: Observation) -> int:
        at = tiers.index(k)
        if k == 0:
            # A period without drafts is over: look again with the smallest step.
            return tiers[min(1, len(tiers) - 1)]
        accepted = self._accepted(window, k)
        if accepted is None:
            return k
        if at + 1 < len(tiers) and accepted > k + self.UP:
            return tiers[at + 1]
        if at > 0 and accepted <= (tiers[at - 1] + self.DOWN if tiers[at - 1] else self.DOWN_TO_OFF):
            return tiers[at - 1]
        return k

    @staticmethod
    def _accepted(window: Observation, k: int) -> float | None:
        """Accepted drafts a step at this K, by position, so that other slots' K do not mix in; None if unseen."""
        drafted = window.drafted_per_pos[:k]
        if len(drafted) < k or min(drafted) <= 0:
            return None
        return sum(accepted / tried for accepted, tried in zip(window.accepted_per_pos, drafted, strict=False))


class ScheduleOnly:
    """A controller that may not reach the autoscaler: how the rules that know no capacity are compared."""

    def __init__(self, inner: Controller) -> None:
        self.inner = inner

    def control(self, now_s: float, series: Sequence[Series], replicas: int) -> Commands:
        """The inner controller's schedule."""
        return replace(self.inner.control(now_s, series, replicas), in_flight_target=None, held_requests=None)


def mean_context(window: Observation) -> float:
    """Cached tokens of a running request, from the share of the cache in use; 0 while nothing runs."""
    return window.cached_tokens / window.running if window.running > 0 else 0.0
