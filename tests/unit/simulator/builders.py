"""Small engines and workloads, so that a test only names what it is about."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import count
from typing import Any

from outrider.core.schedule import Schedule, constant, parse_text
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.profile import Profile, load_profile
from outrider.simulator.request import Request, RequestRecord
from outrider.simulator.settings import EngineSettings, Plugin, Speculation

MAX_BATCH = 256


@cache
def profile() -> Profile:
    return load_profile()


def speculation(schedule: Schedule | str | int = 3, ceiling: int = 6, named: Sequence[int] = range(7)) -> Speculation:
    if isinstance(schedule, int):
        schedule = constant(schedule, MAX_BATCH)
    elif isinstance(schedule, str):
        schedule = parse_text(schedule)
    return Speculation("eagle3", ceiling, schedule, tuple(k for k in named if k <= ceiling))


def settings(
    schedule: Schedule | str | int = 3, *, ceiling: int = 6, named: Sequence[int] = range(7), **changes: Any
) -> EngineSettings:
    chosen: dict[str, Any] = {
        "speculation": speculation(schedule, ceiling, named),
        "max_num_seqs": MAX_BATCH,
        "max_model_len": 100_000,
        "served_model_names": ("chat",),
        "plugin": Plugin(),
    }
    return EngineSettings(**(chosen | changes))


def engine(schedule: Schedule | str | int = 3, *, seed: int = 1, **changes: Any) -> SimulatedEngine:
    return SimulatedEngine(settings(schedule, **changes), profile(), seed=seed)


def request(
    name: object = "r",
    *,
    at: float = 0.0,
    prompt: int = 128,
    output: int = 100,
    acceptance: Iterable[float] | None = None,
) -> Request:
    return Request(str(name), at, prompt, output, None if acceptance is None else tuple(acceptance))


def submit_all(target: SimulatedEngine, requests: Iterable[Request]) -> list[RequestRecord]:
    """Submit each at its arrival; the list fills as they finish."""
    records: list[RequestRecord] = []
    target.on_finish = records.append
    for one in requests:
        target.submit(one, one.arrival_s)
    return records


def steps(target: SimulatedEngine, number: int) -> None:
    """Let this many steps end."""
    for _ in range(number):
        target.advance(target.now_s)
        assert target.next_event_s is not None
        target.advance(target.next_event_s)


def calls(work: Callable[[], object]) -> int:
    """Functions called in the meantime: a measure of work that no other load on the machine changes."""
    made, before = 0, sys.getprofile()

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


_hosts = count(1)


def own_address() -> str:
    """A loopback address that no other test process uses."""
    pid = os.getpid()
    return f"127.{100 + pid % 100}.{pid // 100 % 250}.{next(_hosts)}"


# Command lines, as the operator renders them.

EVERY_K = [[1, 1, 0], [2, 2, 1], [3, 3, 2], [4, 4, 3], [5, 256, 5]]
PLUGIN = {
    "VLLM_PLUGINS": "outrider",
    "OUTRIDER_ADMIN_PORT": "8001",
    "OUTRIDER_ADMIN_KEY_FILE": "/etc/outrider/admin/key",
    "OUTRIDER_SCHEDULE_FILE": "/etc/outrider/schedule/schedule.json",
    "OUTRIDER_INITIAL_SCHEDULE": "[[1,256,3]]",
}


def speculative(**changes: object) -> list[str]:
    config: dict[str, object] = {
        "method": "eagle3",
        "model": "org/draft",
        "num_speculative_tokens": 5,
        "num_speculative_tokens_per_batch_size": EVERY_K,
    }
    return [
        "--speculative-config",
        json.dumps({key: value for key, value in (config | changes).items() if value != ""}),
    ]
