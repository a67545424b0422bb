"""Start processes so that every one can be found and ended again, whatever happens to the one that started it.

Each process leads a session of its own (Ctrl-C in a terminal reaches only us) and writes its own record before it
becomes the program asked for: a kill between the start and our note of it leaves nothing unknown. A record holds the
process id and the start time, and nothing is ever signalled unless both still match. Standard library only: `warden`
runs this in a bare Python.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.errors import ClusterError
from tests.testbed.places import REPOSITORY

_STATE, _THREADS, _START_TIME = 0, 17, 19  # Places in /proc/PID/stat after the name, see proc_pid_stat(5).

_LAUNCHER = 'read -r stat </proc/$$/stat && printf "%s\\n" "$stat" >"$0" && exec "$@"'
"""For sh: write the own line of /proc to the record ``$0``, then become the program; the start time stays."""

_POLL_S = 0.02  # How often an ending process is looked at: the wait stays well under what a person notices.


@dataclass(frozen=True, slots=True)
class Process:
    """A process that was started here, perhaps by another run of Python."""

    name: str
    pid: int
    start_time: int
    """Clock ticks after boot: with the process id, an identity that is not reused until the next one."""
    log: Path

    @property
    def alive(self) -> bool:
        """Whether it still runs; one that has ended and was not yet collected by its parent does not."""
        fields = _stat(self.pid)
        if fields is None or int(fields[_START_TIME]) != self.start_time:
            return False
        # A process looks like a zombie once its first thread has ended; others may hold its ports a little longer.
        return fields[_STATE] not in "ZX" or int(fields[_THREADS]) > 1

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and what it started; does nothing when it has ended."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


class ProcessTable:
    """The processes of one run folder, a record each in ``processes``, below the id of the machine's boot."""

    def __init__(self, folder: Path, *, inherit: Sequence[int] = ()) -> None:
        """``inherit`` are file descriptors that every process keeps open, such as a lock that is to live as long."""
        self.folder = folder
        self.records = folder / "processes" / _boot()
        self.logs = folder / "logs"
        self._inherit = tuple(inherit)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, tuple[Sequence[str | Path], Mapping[str, str] | None]] = {}
        self._wanted: set[str] = set()

    def start(
        self,
        name: str,
        arguments: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        *,
        log: Path | None = None,
        working_folder: Path | None = None,
    ) -> Process:
        """Start a program in the background, its output appended to ``logs/<name>.log``.

        ``environment`` is added to ours.

        Raises:
            ClusterError: a process of that name runs already, or the program cannot be started.
        """
        running = self.find(name)
        if running is not None and running.alive:
            raise ClusterError(f"{name} runs already, as process {running.pid}", "Stop it first.")
        self.records.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        log = log or self.logs / f"{name}.log"
        record = self.records / name
        record.unlink(missing_ok=True)
        with log.open("ab") as output:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _LAUNCHER, record, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                cwd=working_folder,
                start_new_session=True,
                pass_fds=self._inherit,
            )
        self._children[name] = child
        self._commands[name] = (arguments, environment)
        self._wanted.add(name)
        while (process := self.find(name)) is None:
            if child.poll() is not None and self.find(name) is None:  # it may have ended since the look before
                raise ClusterError(f"{name} did not start: exit status {child.returncode}", f"Its log is {log}.")
            time.sleep(_POLL_S / 10)
        return process

    def restart(self, name: str) -> Process:
        """Start a process again that was started here and has ended, by the same command."""
        if name not in self._commands:
            raise ClusterError(f"{name} was not started here, so its command is not known")
        return self.start(name, *self._commands[name])

    def find(self, name: str) -> Process | None:
        """The process last started under a name, alive or not."""
        return _read_record(self.records / name, self.logs)

    def all(self) -> list[Process]:
        """Every process ever started in this folder, in the order of their starts."""
        found = [_read_record(path, self.logs) for path in self.records.glob("*")]
        return sorted((each for each in found if each is not None), key=lambda each: (each.start_time, each.pid))

    def alive(self) -> list[Process]:
        """The processes that still run."""
        self._collect()
        return [process for process in self.all() if process.alive]

    def lost(self) -> list[str]:
        """The names of processes that were started here and have ended without having been told to."""
        self._collect()
        return sorted(name for name in self._wanted if self._children[name].returncode is not None)

    def exit_status(self, name: str) -> int | None:
        """How a process ended (negative: the signal); None while it runs, or where another Python started it."""
        child = self._children.get(name)
        return child.poll() if child else None

    def stop(
        self, processes: Iterable[Process], number: signal.Signals = signal.SIGTERM, *, patience_s: float = 10.0
    ) -> None:
        """End some processes: ask all of them at once, and kill those that have not gone after ``patience_s``."""
        remaining = asked = list(processes)
        for process in remaining:
            self._wanted.discard(process.name)
            process.signal(number)
        deadline = time.monotonic() + patience_s
        while remaining := self._still_alive(remaining):
            if time.monotonic() > deadline:
                for process in remaining:
                    process.signal(signal.SIGKILL)
            time.sleep(_POLL_S)
        for process in asked:
            if process.name in self._children and self.find(process.name) == process:
                self._children[process.name].wait()

    def _still_alive(self, processes: Iterable[Process]) -> list[Process]:
        self._collect()
        return [process for process in processes if process.alive]

    def _collect(self) -> None:
        """Take the exit statuses of ended children, or they would stay in the process list as zombies."""
        for child in self._children.values():
            child.poll()


class Guard:
    """A small process beside us that ends everything in a table when we die without having done so ourselves.

    The kernel's parent-death signal would need no process, but it fires when the *thread* that forked ends, and tests
    start clusters from threads.
    """

    def __init__(self, table: ProcessTable, discard: Sequence[Path] = ()) -> None:
        """``discard`` are files and folders that the guard removes when it had to act."""
        table.logs.mkdir(parents=True, exist_ok=True)
        with (table.logs / "warden.log").open("ab") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-S", "-m", "tests.testbed.warden", str(os.getpid()), table.folder, *discard],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """End the guard: from here on, what still runs keeps running when we end."""
        self._child.kill()
        self._child.wait()


def start_time_of(pid: int) -> int | None:
    """When a process started, in clock ticks after boot; None if there is none."""
    fields = _stat(pid)
    return None if fields is None else int(fields[_START_TIME])


def _boot() -> str:
    """Which boot this is: records of an earlier one tell of processes that cannot exist any more."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:  # Some sandboxes have none, and do not outlive a boot either.
        return "boot"


def _stat(pid: int) -> list[str] | None:
    try:
        return _fields(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


def _fields(line: str) -> list[str]:
    """What follows the name, which is in brackets and may itself hold spaces and brackets."""
    return line.rpartition(")")[2].split()


def _read_record(path: Path, logs: Path) -> Process | None:
    """A process from its record; None where there is none or it is still being written."""
    try:
        line = path.read_text()
    except FileNotFoundError:
        return None
    if not line.endswith("\n"):
        return None
    return Process(
        path.name, int(line.split(maxsplit=1)[0]), int(_fields(line)[_START_TIME]), logs / f"{path.name}.log"
    )
