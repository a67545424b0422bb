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
PLAN = (
    Step("start", START_S),
    Step("trace outrider,k1,k3,k5 --rounds 3", 3 * 4 * ROUND_S),
    Step("changes --seconds 60", 65.0),
    Step("calibrate", 110.0, spare=True),
    Step("stop", 12.0),
    Step("start --tuning Off", START_S),
    Step("trace none --rounds 3", 3 * ROUND_S),
    Step("stop", 12.0),
)


def play(seconds: float, do: Callable[[Sequence[str]], None], clock: Callable[[], float]) -> list[str]:
    """Run the plan; ``do`` takes a command's words. Returns the commands that were left out for want of time.

    What needs an engine that was not started is left out too; one that was started is always stopped.
    """
    began_s, running, left_out = clock(), False, []
    for number, step in enumerate(PLAN):
        what = step.command.partition(" ")[0]
        after_s = sum(later.seconds for later in PLAN[number + 1 :]) if step.spare else 0.0
        enough = seconds - (clock() - began_s) >= step.seconds + after_s
        if (running or what == "start") and (enough or what == "stop"):
            do(step.command.split())
            running = what != "stop"
        else:
            left_out.append(step.command)
    return left_out
