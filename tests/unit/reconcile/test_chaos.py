"""Control passes in virtual time while everything goes wrong: the short form of `make chaos`, which plays a hundred
thousand."""

from __future__ import annotations

import gc
import logging
import time
from pathlib import Path

import pytest

from .chaos import ACT, Chaos

FLAT_MIB = 16.0
"""Growth of a process that keeps nothing: what Python's allocator takes and does not give back."""


async def test_nothing_that_neighbours_do_breaks_what_must_hold(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "outrider")  # warnings there are in every step
    options = request.config.option
    seed, share = options.chaos_seed, _Share(options.chaos_passes, options.chaos_seconds)
    chaos, early_mib = Chaos(seed), 0.0
    try:
        await chaos.begin()
        while share() < 1.0:
            await chaos.step()
            share.steps += 1
            assert not caplog.records, caplog.text  # faults of ours end in the log
            if share.steps % ACT == 0:
                await chaos.converge()
            if not early_mib and share() >= 0.2:
                early_mib = _resident_mib()
    except BaseException as fault:
        fault.add_note(f"play it again: --chaos-seed {seed}; it failed at step {share.steps}")
        raise
    finally:
        print(f"chaos, seed {seed}, at most {chaos.slowest} passes to converge: {dict(chaos.seen)}")  # noqa: T201
    late_mib = _resident_mib()
    print(f"memory after a fifth and at the end: {early_mib:.1f} and {late_mib:.1f} MiB")  # noqa: T201
    assert late_mib < early_mib + FLAT_MIB
    assert chaos.seen["deliveries"] > share.steps / 10
    assert chaos.seen["passes without data"] > share.steps / 10
    assert chaos.seen["numbers of replicas"] > share.steps / 10


class _Share:
    """How much of a run is over, by steps or by time."""

    def __init__(self, steps: int, seconds: float | None) -> None:
        self._of, self._seconds, self._began_s, self.steps = steps, seconds, time.monotonic(), 0

    def __call__(self) -> float:
        over = 0.0 if self._seconds is None else (time.monotonic() - self._began_s) / self._seconds
        return max(over, self.steps / self._of)


def _resident_mib() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
