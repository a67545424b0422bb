"""Start an engine for tests: the simulated one in a thread of this process, or a real vLLM as processes of its own.

Both get the same arguments, environment and mounted files, and come back as the same `EngineUnderTest`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrider.simulator.command_line import parse
from outrider.simulator.live import LiveEngine
from outrider.simulator.profile import load_profile
from outrider.simulator.server import EngineServer
from tests.engine import environment, models
from tests.engine.client import (
    ADMIN_PORT,
    HTTP_PORT,
    KEY_FILE,
    MODEL,
    SCHEDULE_FILE,
    EngineUnderTest,
    MountedFolder,
)

LOGS = environment.REPOSITORY / "build" / "engine"
MAX_NUM_SEQS = 16
MAX_SPECULATIVE_TOKENS = 4
EVERY_K = [[1, 1, 4], [2, 2, 3], [3, 3, 2], [4, 4, 1], [5, 16, 0]]
"""The start-up table names each K, as the operator's does: others could not be set later."""
INITIAL = [[1, 16, 3]]
MOUNTED = {"generation": 7, "schedule": [[1, 8, 2], [9, 16, 1]], "leaseSeconds": 3600}
ADMIN_KEY = "first-admin-key"

START_COMMAND = "outrider_runtime.serve"
START_BUDGET_S = 300.0  # 35 s on two quiet cores; more beside other builds
STOP_BUDGET_S = 30.0
REFRESH_S = 0.05  # how often the simulated engine looks at its mounted files
SIMULATED_DILATION = 0.2  # times slower than the measured card: the suite is about rules, not about speed
_POLL_S = 0.1
_LAST_LINES = 40


@dataclass(frozen=True, slots=True)
class Start:
    """What an engine is started with, beside what all have in common."""

    name: str
    """Of its folder under build/engine, which is kept until the next run."""
    table: Sequence[Sequence[int]] | None = field(default_factory=lambda: EVERY_K)
    environment: Mapping[str, str] = field(default_factory=dict)


class EngineDied(Exception):
    """A real engine ended or never answered; the message has the end of its log."""


@contextlib.contextmanager
def simulated(start: Start) -> Iterator[EngineUnderTest]:
    """The simulated engine, on an event loop in a thread."""
    engine, variables = _prepare("simulated", start)
    settings = parse(arguments(engine.address, start, "target", "draft"), variables)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=f"engine {start.name}", daemon=True)
    thread.start()
    stop = asyncio.Event()
    up = threading.Event()

    async def live() -> None:
        running = LiveEngine(settings, load_profile().slowed(SIMULATED_DILATION), seed=1, files=_Disk())
        server = EngineServer(running)
        await server.start(engine.address)
        up.set()
        try:
            while not stop.is_set():
                running.refresh()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), REFRESH_S)
        finally:
            await server.close()

    life = asyncio.run_coroutine_threadsafe(live(), loop)
    engine.alive = lambda: not life.done()
    try:
        while not up.wait(_POLL_S):
            if life.done():
                life.result()  # raises what went wrong
        engine.state_at_start = engine.get().body
        yield engine
    finally:
        loop.call_soon_threadsafe(stop.set)
        with contextlib.suppress(TimeoutError):
            life.result(STOP_BUDGET_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_BUDGET_S)


@contextlib.contextmanager
def real(start: Start) -> Iterator[EngineUnderTest]:
    """A real vLLM with our plugin, up and warm; its processes end with the block."""
    engine, variables = _prepare("real", start)
    folder = _run_folder(start)
    made = models.ensure()
    command = [
        *("nice", str(environment.python()), "-m", START_COMMAND),
        *arguments(engine.address, start, str(made.target), str(made.draft)),
    ]
    log = folder / "server.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment.variables(folder / "plugin") | variables,
            cwd=folder,
            start_new_session=True,
        )
    engine.alive, engine.process_id = lambda: child.poll() is None, child.pid
    try:
        _wait_until_it_serves(engine, child, log)
        engine.state_at_start = engine.get().body
        yield engine
    finally:
        _stop(child)


def arguments(address: str, start: Start, target: str, draft: str) -> list[str]:
    """The command line of either engine."""
    speculation: dict[str, Any] = {
        "method": "draft_model",
        "model": draft,
        "num_speculative_tokens": MAX_SPECULATIVE_TOKENS,
    }
    if start.table is not None:
        speculation["num_speculative_tokens_per_batch_size"] = start.table
    return [
        *("--model", target, "--served-model-name", MODEL, "--host", address, "--port", str(HTTP_PORT)),
        *("--skip-tokenizer-init", "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024"),
        *("--max-num-seqs", str(MAX_NUM_SEQS), "--max-num-batched-tokens", "1024"),
        *("--kv-cache-memory-bytes", str(128 * 2**20)),
        *("--speculative-config", json.dumps(speculation)),
    ]


def _prepare(kind: str, start: Start) -> tuple[EngineUnderTest, dict[str, str]]:
    folder = _run_folder(start)
    for rest in LOGS.glob(f"{start.name}-*"):
        if rest == folder or not Path("/proc", rest.name.rpartition("-")[2]).exists():
            shutil.rmtree(rest, ignore_errors=True)
    folder.mkdir(parents=True)
    engine = EngineUnderTest(
        kind=kind,
        address=free_address(),
        admin_key=ADMIN_KEY,
        mounted_key=MountedFolder(folder / "admin", {KEY_FILE: f"{ADMIN_KEY}\n"}),
        mounted_schedule=MountedFolder(folder / "schedule", {SCHEDULE_FILE: json.dumps(MOUNTED)}),
        alive=lambda: False,
        sees_files_within_s=10 * REFRESH_S if kind == "simulated" else 5.0,
    )
    variables = {
        "VLLM_PLUGINS": "outrider",
        "OUTRIDER_ADMIN_PORT": str(ADMIN_PORT),
        "OUTRIDER_ADMIN_KEY_FILE": str(engine.mounted_key.path / KEY_FILE),
        "OUTRIDER_SCHEDULE_FILE": str(engine.mounted_schedule.path / SCHEDULE_FILE),
        "OUTRIDER_INITIAL_SCHEDULE": json.dumps(INITIAL),
    }
    return engine, variables | dict(start.environment)


def _run_folder(start: Start) -> Path:
    """Where mounted files and logs are: another one in each process, since several may run these tests at once."""
    return LOGS / f"{start.name}-{os.getpid()}"


def free_address() -> str:
    """A loopback address on which both ports are free; away from those of the local clusters (127.16 to 127.111)."""
    for _ in range(100):
        address = f"127.{random.randint(200, 250)}.{random.randint(0, 255)}.{random.randint(1, 254)}"
        try:
            for port in (HTTP_PORT, ADMIN_PORT):
                with socket.socket() as probe:
                    probe.bind((address, port))
        except OSError:
            continue
        return address
    raise OSError(f"no loopback address has both ports free, {HTTP_PORT} and {ADMIN_PORT}")


class _Disk(dict[str, str]):
    """The mounted files of the simulated engine, read anew at each look."""

    def get(self, path: str, default: Any = None) -> Any:
        try:
            return Path(path).read_text()
        except OSError:
            return default


def _wait_until_it_serves(engine: EngineUnderTest, child: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_BUDGET_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise EngineDied(f"the engine ended with status {child.returncode} while it started:\n{_end_of(log)}")
        with contextlib.suppress(OSError):
            healthy = engine.call("GET", "/health", port=HTTP_PORT).status == 200
            if healthy and engine.ready().status == 200:
                return
        time.sleep(_POLL_S)
    raise EngineDied(f"the engine did not serve within {START_BUDGET_S:.0f} s:\n{_end_of(log)}")


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Ask the parent, which ends the rest; whoever is left of its session is killed."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(STOP_BUDGET_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
