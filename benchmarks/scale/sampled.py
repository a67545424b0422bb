"""``python -m benchmarks.scale.sampled FILE ...``: the operator's command line, with a look at what it does.

From one SIGUSR2 to the next a thread notes the stacks of all threads that run, a hundred times a second; the counts
then go to ``FILE``, a line a stack, in the folded form that flame graphs are drawn from. Before, it sleeps.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

EVERY_S = 0.01
WAITS = ("select", "poll", "wait", "_worker", "serve_forever", "accept")
"""Functions in which a thread does nothing."""
DEEPEST = 60


def stack(frame: FrameType | None) -> tuple[CodeType, ...]:
    """Code from the outermost call to the innermost one."""
    found: list[CodeType] = []
    while frame is not None and len(found) < DEEPEST:
        found.append(frame.f_code)
        frame = frame.f_back
    return tuple(reversed(found))


def idle(one: tuple[CodeType, ...]) -> bool:
    """Whether the thread waits."""
    return not one or one[-1].co_name in WAITS


def label(code: CodeType) -> str:
    """``module:function``, short enough to read."""
    path = Path(code.co_filename)
    return f"{path.parent.name}/{path.stem}:{code.co_qualname}"


def folded(counts: Counter[tuple[CodeType, ...]]) -> str:
    """One line a stack and its count."""
    summed = Counter[str]()
    for one, number in counts.items():
        summed[";".join(label(code).replace(";", ",").replace(" ", "") for code in one)] += number
    return "".join(f"{text} {number}\n" for text, number in summed.most_common())


def sample(counts: Counter[tuple[CodeType, ...]], own: int) -> None:
    """Note what every other thread does now."""
    for ident, frame in sys._current_frames().items():
        found = () if ident == own else stack(frame)
        if not idle(found):
            counts[found] += 1


def main() -> None:
    """Run the operator with the sampler beside it."""
    output, counts, wanted = Path(sys.argv[1]), Counter[tuple[CodeType, ...]](), threading.Event()

    def follow() -> None:
        while wanted.wait():
            sample(counts, threading.get_ident())
            time.sleep(EVERY_S)

    def turn(*_: object) -> None:
        if not wanted.is_set():
            counts.clear()
            wanted.set()
            return
        wanted.clear()
        part = output.with_suffix(".part")
        part.write_text(folded(counts))
        part.rename(output)

    threading.Thread(target=follow, daemon=True).start()
    signal.signal(signal.SIGUSR2, turn)
    sys.argv = ["outrider", *sys.argv[2:]]
    from outrider.cli.main import main as outrider

    outrider()


if __name__ == "__main__":
    main()
