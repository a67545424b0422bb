"""What is known of the engines of a comparison: windows of time by boot, and boots by track.

A boot is one engine process from its start to its end. Windows are cut at the same moments for all boots, so that those
of one moment can be compared. A window without data is `Missing`, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import reduce

from outrider.core.observation import Observation
from outrider.core.series import Missing
from outrider.core.survival import Counts
from outrider.core.verification import MIN_STEPS, MIN_TOKENS


@dataclass(frozen=True, slots=True)
class Answers:
    """Requests that ended in a stretch of time, and how. All are counts, 0 or above."""

    ended: float = 0.0
    """Requests that ended in any way, errors included."""
    errors: float = 0.0
    """Ended by a fault of the engine."""
    empty: float = 0.0
    """Answered with no token or with one."""
    cut: float = 0.0
    """Ended by their length limit."""
    repeating: float = 0.0
    """Ended since they repeated themselves; 0 where the engine does not look."""
    tokens: float = 0.0
    """Output tokens of all of them."""
    tpot_within: float = 0.0
    """Requests whose time per output token is within the objective, of ``tpot_of`` that have one."""
    tpot_of: float = 0.0
    ttft_within: float = 0.0
    """Requests whose time to first token is within the objective, of ``ttft_of`` that have one."""
    ttft_of: float = 0.0

    def plus(self, other: Answers) -> Answers:
        """Both together."""
        return Answers(*(getattr(self, name) + getattr(other, name) for name in _NAMES))


_NAMES = tuple(one.name for one in fields(Answers))
NOTHING = Answers()
UNDRAFTED = Counts()


@dataclass(frozen=True, slots=True)
class Window:
    """One boot in one window."""

    until_s: float
    """Its end; windows of all boots with the same end are of the same time."""
    batch: float
    """Requests in a step, averaged over the steps."""
    rate_tps: float
    """Tokens a second of one running request: token goodput over the batch size."""
    tokens: float
    """Generated tokens behind it."""
    length: float = 1.0
    """Tokens a request and step, the part of the rate that is the drafts' doing; 1 without speculation."""
    answers: Answers = NOTHING
    acceptance: Counts = UNDRAFTED

    @property
    def tells(self) -> bool:
        """Whether there was enough traffic for a rate."""
        return self.batch > 0.0 and self.rate_tps > 0.0 and self.tokens >= MIN_TOKENS


def window_of(observation: Observation | Missing, ended: Answers = NOTHING) -> Window | Missing:
    """The window of one boot, from what was observed of its engines alone.

    With our plugin the rate comes from decode-only steps: acceptance length over step time, so that prefill does not
    disturb it. With a plain vLLM it is the inverse of the mean TPOT of the requests that ended. Missing with reason
    ``NoTraffic`` where neither is known.
    """
    if isinstance(observation, Missing):
        return observation
    found = _decode_steps(observation) or _requests(observation)
    if found is None:
        return Missing("NoTraffic", "no decode-only steps and no request that ended in the window")
    batch, rate_tps, length = found
    acceptance = Counts(observation.drafted_per_pos, observation.accepted_per_pos)
    return Window(observation.until_s, batch, rate_tps, observation.generation_tokens, length, ended, acceptance)


def _decode_steps(observation: Observation) -> tuple[float, float, float] | None:
    cells = [cell for cell in observation.cells if not cell.mixed]
    steps, seconds = sum(cell.steps for cell in cells), sum(cell.seconds for cell in cells)
    if steps < MIN_STEPS or seconds <= 0.0:
        return None
    length = 1.0 + sum(observation.accepted_per_pos) / sum(cell.requests for cell in observation.cells)
    return sum(cell.requests for cell in cells) / steps, length * steps / seconds, length


def _requests(observation: Observation) -> tuple[float, float, float] | None:
    if observation.tpot.count <= 0.0 or observation.tpot.sum <= 0.0:
        return None
    length = observation.acceptance_length or 1.0
    return observation.batch, observation.tpot.count / observation.tpot.sum, length


@dataclass(frozen=True, slots=True)
class Boot:
    """One engine process of one revision, its windows in order of time."""

    name: str
    """Unlike that of any other boot: the pod's UID and the start of the process."""
    windows: tuple[Window | Missing, ...] = ()
    ended: bool = False
    """The process is gone; it will not be heard any longer."""

    @property
    def known(self) -> list[Window]:
        """Windows with data."""
        return [one for one in self.windows if not isinstance(one, Missing)]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything known of a comparison."""

    since_s: float
    """When the candidate first took traffic."""
    stable: tuple[Boot, ...] = ()
    candidate: tuple[Boot, ...] = ()
    """In order of their start."""
    crashes: int = 0
    """Ends of candidate processes that nobody asked for."""


def answers(boots: Iterable[Boot]) -> tuple[Answers, ...]:
    """Of each boot, over all its windows."""
    return tuple(total(one.answers for one in boot.known if one.answers is not NOTHING) for boot in boots)


def total(many: Iterable[Answers]) -> Answers:
    """All of them together."""
    return reduce(Answers.plus, many, NOTHING)


def acceptance(boots: Iterable[Boot]) -> Counts:
    """Drafts proposed and accepted by position, of all windows together."""
    found = UNDRAFTED
    for boot in boots:
        for window in boot.known:
            if window.acceptance is not UNDRAFTED:
                found = found.plus(window.acceptance)
    return found
