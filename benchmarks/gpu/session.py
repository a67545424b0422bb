"""One sitting on a lent GPU: what is missing, most telling first, as far as its time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """A command of ``python -m benchmarks.gpu`` and the seconds to allow for it."""

    command: str
    seconds: float
    spare: bool = False
    """Only where all that follows still fits."""


ROUND_S = 56.0
"""An arm's pass: `runs.TRACE`, and a second for it to end."""
START_S = 160.0
"""An engine that takes 144 s, as one H100 did, with something to spare."""
LATE_S = 90.0
"""A command that has not ended so long after what is allowed for it hangs; what comes after it still counts."""
PLAN = (
    Step("start --tuning Off", START_S),
    Step("trace none --rounds 3", 3 * ROUND_S),
    Step("stop", 12.0),
    Step("start", START_S),
    Step("trace outrider,k1,k3,k5 --rounds 3", 3 * 4 * ROUND_S),
    Step("calibrate", 145.0),
    Step("trace threshold --rounds 3", 3 * ROUND_S, spare=True),
    Step("changes --seconds 60", 65.0),
    Step("stop", 12.0),
)


@dataclass(frozen=True, slots=True)
class Played:
    """Commands of the plan that gave no rows, or not all."""

    left_out: Sequence[str]
    """For want of time, or of an engine."""
    failed: Sequence[str]


def play(seconds: float, do: Callable[[Sequence[str], float], bool], clock: Callable[[], float]) -> Played:
    """Run the plan; ``do`` takes a command's words and the seconds after which to end it, and says if all went well.

    What needs an engine that was not started is left out; one that was started, or tried, is always stopped. After a
    command that failed the next ones are run all the same: rows cost more than the seconds of another failure.
    """
    began_s, running = clock(), False
    left_out, failed = list[str](), list[str]()
    for number, step in enumerate(PLAN):
        what = step.command.partition(" ")[0]
        after_s = sum(later.seconds for later in PLAN[number + 1 :]) if step.spare else 0.0
        enough = seconds - (clock() - began_s) >= step.seconds + after_s
        if not (running or what == "start") or not (enough or what == "stop"):
            left_out.append(step.command)
            continue
        well = do(step.command.split(), step.seconds + LATE_S)
        if not well:
            failed.append(step.command)
        if what == "start":
            running = well
            if not well:
                do(["stop"], LATE_S)
        elif what == "stop":
            running = False
    return Played(left_out, failed)
