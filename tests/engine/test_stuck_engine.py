"""An engine core that makes no progress, on a real vLLM: its process is stopped and let go on again.

The default patience is 10 s, so this takes a quarter of a minute.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.client import EngineUnderTest, wait_until
from tests.engine.load import Load

pytestmark = pytest.mark.engine

PATIENCE_S = 10.0
NUM_TOKENS = 200
PROMPTS = [[11, 5], [12, 5], [13, 5], [14, 5]]


@pytest.fixture
def engine(real_engine: EngineUnderTest) -> EngineUnderTest:
    """The real one."""
    return real_engine


@contextlib.contextmanager
def stopped(engine: EngineUnderTest) -> Iterator[None]:
    """The engine core's process does not run within the block, as if a kernel did not return."""
    assert engine.process_id is not None
    core = next(pid for pid in descendants(engine.process_id) if b"EngineCore" in command_line(pid))
    os.kill(core, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(core, signal.SIGCONT)


def descendants(pid: int) -> Iterator[int]:
    """Children, their children and so on."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from descendants(child)


def command_line(pid: int) -> bytes:
    """As the process shows it; vLLM's engine core names itself there."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_while_the_engine_hangs_new_requests_are_refused_at_once_and_nothing_is_lost(engine: EngineUnderTest) -> None:
    before = engine.settled()
    with Load(engine, PROMPTS, NUM_TOKENS) as load:
        with stopped(engine):
            assert engine.ready().status == 200  # a long step is no fault yet
            wait_until(lambda: engine.ready().status == 503, PATIENCE_S + 5, "not ready")
            assert "not answered" in engine.ready().body["reason"]
            asked = time.monotonic()
            refused = engine.generate([9, 9], 5)
            assert (refused.status, int(refused.headers["retry-after"]) >= 1) == (503, True)
            assert time.monotonic() - asked < PATIENCE_S / 2
            hanging = engine.metrics()
            assert hanging.sum("outrider_engine_seconds_since_token") > PATIENCE_S
            # The hanging step counts before it ends; on a busy machine others may have stalled too.
            stalls = hanging.since(before).sum("outrider_engine_stalls_total")
            assert stalls >= 1
        wait_until(lambda: engine.ready().status == 200, 10, "ready again")
        assert engine.generate([9, 9], 5).status == 200  # closed by itself
    assert load.faults == []
    assert {len(answer) for answers in load.answers for answer in answers} == {NUM_TOKENS}
    growth = engine.settled().since(before)
    assert growth.sum("outrider_engine_rejected_total", reason="no_progress") == 1
    assert growth.sum("outrider_engine_stalls_total") >= stalls  # a counter that fell would look like a restart
    assert growth.sum("outrider_engine_stall_seconds_total") > PATIENCE_S
