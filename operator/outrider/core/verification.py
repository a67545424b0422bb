"""Did the last change help? Judged by what engines delivered, never by acceptance alone.

The old arm no longer runs, so it is predicted: by the step times that were measured while it did, and the acceptance of
today. The new arm is measured. Decode-only steps are compared where there are any, since prefill slows both arms alike
and comes and goes with the arrivals; the rate of whole requests is compared only at like load. A change that stays
clearly behind is taken back, and its K is barred at that load.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from outrider.core.objective import Yield
from outrider.core.observation import Observation
from outrider.core.schedule import Schedule
from outrider.core.series import Missing
from outrider.core.state import Bar, ControllerConfig, ControllerState, Trial

WORSE = 0.9
"""A window counts against the change when it delivers less than this share of the old arm: twice the scatter of a 15 s
window."""
COLLAPSE = 0.6
"""At like load a rate under this share counts against it, whatever decode-only steps say: the fault may lie in the
others."""
LIKE = 0.25
"""Batch and prompt load within this share of what they were are like load."""
WINDOWS = 2
"""Windows of one kind that settle it: one may be a burst."""
MAX_PERIODS = 8
"""A trial that traffic does not decide in this many control periods ends as accepted."""
MIN_TOKENS = 200.0
"""Generated tokens that a window needs to count."""
MIN_STEPS = 20.0
"""Decode-only steps that a window needs to be judged by them."""
BAR_S = 600.0
"""First time that a K is barred; doubles with every repetition at the same load."""
MAX_BAR_S = 6 * 3600.0

Verdict = Literal["open", "better", "worse", "undecided"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tokens a second of one request: delivered, and what the old schedule would have delivered."""

    delivered: float
    expected: float
    batch: float

    @property
    def share(self) -> float:
        """Delivered over expected."""
        return self.delivered / self.expected


def rate(window: Observation) -> float | None:
    """Tokens a second of one running request; None without enough traffic to tell."""
    if window.running <= 0 or window.generation_tokens < MIN_TOKENS:
        return None
    return window.generation_tokens / (window.running * window.seconds)


def begin(before: Schedule, window: Observation, predicted: Yield, now_s: float) -> Trial | None:
    """Put a change that is about to be made on probation; None if there is too little traffic to compare with."""
    measured = rate(window)
    if measured is None:
        return None
    tpot_s = predicted.at(before, window.batch)
    return Trial(before, now_s, measured, tpot_s, window.batch, _prompt_tps(window))


def judge(
    trial: Trial, config: ControllerConfig, increment: Observation | Missing, predicted: Yield | None, now_s: float
) -> tuple[Verdict, Trial]:
    """Weigh one more window; the first period after the change is not counted, since it contains both schedules."""
    if now_s > trial.at_s + MAX_PERIODS * config.period_s:
        return "undecided", trial
    if isinstance(increment, Missing) or predicted is None or increment.since_s < trial.at_s:
        return "open", trial
    found = compare(trial, increment, predicted)
    if found is None:
        return "open", trial
    worse = found.share < WORSE
    trial = replace(trial, bad=trial.bad + worse, good=trial.good + (not worse))
    if trial.bad >= WINDOWS:
        return "worse", trial
    return ("better", trial) if trial.good >= WINDOWS else ("open", trial)


def compare(trial: Trial, window: Observation, predicted: Yield) -> Comparison | None:
    """The new arm beside the old one; None where the window cannot tell."""
    delivered = rate(window)
    if delivered is None:
        return None
    whole = Comparison(delivered, trial.rate * trial.tpot_s / predicted.at(trial.before, window.batch), window.batch)
    like_load = _like(window.batch, trial.batch) and _like(_prompt_tps(window), trial.prompt_tps)
    if like_load and whole.share < COLLAPSE:
        return whole
    decode = _decode_steps(trial, window, predicted)
    if decode is not None:
        return decode
    return whole if like_load else None


def _decode_steps(trial: Trial, window: Observation, predicted: Yield) -> Comparison | None:
    cells = [cell for cell in window.cells if not cell.mixed]
    steps = sum(cell.steps for cell in cells)
    if steps < MIN_STEPS:
        return None
    seconds = sum(cell.seconds for cell in cells) / steps
    batch = sum(cell.requests for cell in cells) / steps
    requests = sum(cell.requests for cell in window.cells)
    length = 1.0 + sum(window.accepted_per_pos) / requests
    return Comparison(length / seconds, 1.0 / predicted.at(trial.before, batch), batch)


def bar(state: ControllerState, batch: float, now_s: float) -> tuple[Bar, ...]:
    """Bar the K that the present schedule uses at this load, from half to twice the batch size."""
    k = state.schedule.at(batch)
    first, last = max(1, round(batch / 2)), max(1, round(batch * 2))
    same = [old for old in state.bars if old.num_speculative_tokens == k and old.first <= batch <= old.last]
    times = 1 + max((old.times for old in same), default=0)
    until_s = now_s + min(MAX_BAR_S, BAR_S * 2.0 ** (times - 1))
    kept = tuple(old for old in state.bars if old not in same and old.until_s > now_s - MAX_BAR_S)
    return (*kept, Bar(k, first, last, until_s, times))


def _prompt_tps(window: Observation) -> float:
    return window.prompt_tokens / (window.seconds * len(window.engines))


def _like(now: float, before: float) -> bool:
    return abs(now - before) <= LIKE * max(before, 1.0)
