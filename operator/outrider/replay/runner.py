"""Several policies side by side, each in a process of its own where there is more than one to run."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from outrider.replay.experiment import Experiment, run
from outrider.replay.summary import summarise

Progress = Callable[[str, float], None]
"""Hears of a policy how much of it is done, 0 to 1."""
LOOK_S = 0.1
"""How long progress may go unseen."""

_channel: Any = None
"""In a worker: the queue to those who show progress."""


def run_all(experiment: Experiment, policies: Sequence[str], jobs: int, progress: Progress) -> list[dict[str, Any]]:
    """The summary of each policy, in the order given; at most ``jobs`` run at a time."""
    if jobs == 1 or len(policies) == 1:
        return [_replay(experiment, name, lambda share, name=name: progress(name, share)) for name in policies]  # type: ignore[misc]
    context = multiprocessing.get_context()
    channel = context.Manager().Queue()
    with _pool(min(jobs, len(policies)), context, channel) as pool:
        futures: list[Future[dict[str, Any]]] = [pool.submit(_work, experiment, name) for name in policies]
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            while not channel.empty():
                progress(*channel.get())
            for one in done:
                one.result()  # a fault of one ends the rest
        return [one.result() for one in futures]


@contextmanager
def _pool(jobs: int, context: Any, channel: Any) -> Iterator[ProcessPoolExecutor]:
    """A pool whose waiting work is given up when something goes wrong."""
    pool = ProcessPoolExecutor(jobs, context, _begin, (channel,))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    pool.shutdown()


def _begin(channel: Any) -> None:
    """Ctrl-C reaches every process of the terminal; the one that asked answers it."""
    global _channel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _channel = channel


def _work(experiment: Experiment, policy: str) -> dict[str, Any]:
    return _replay(experiment, policy, lambda share: _channel.put((policy, share)))


def _replay(experiment: Experiment, policy: str, tell: Callable[[float], None]) -> dict[str, Any]:
    resolved = experiment.render().resolved
    return summarise(run(experiment, policy, tell), resolved.tpot_s, resolved.ttft_s, resolved.gpus)
