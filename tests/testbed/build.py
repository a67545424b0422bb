"""Build the tools of a cluster that are not built yet, and say what is happening meanwhile.

On four cores or more two builds run at a time: one alone leaves cores idle while it links. On fewer, one keeps them
nine tenths busy (measured on two: 38 minutes of processor time in 21), and one after the other means that what is
needed first is ready first. Two of one Go module never run together: they would compile the packages they share twice.
Builds go through a lock a module, so that several people, or test runs, may call this at once, and come into place by a
rename.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Literal

from tests.testbed.errors import ClusterError, last_lines
from tests.testbed.places import GO_MODULES, cache_folder
from tests.testbed.processes import Guard, Process, ProcessTable
from tests.testbed.tools import (
    BUILD_ENVIRONMENT,
    GO_SETTINGS,
    Build,
    Tool,
    Toolset,
    build_arguments,
    build_of,
    go_line,
    tools_of,
)

AT_ONCE = 2 if len(os.sched_getaffinity(0)) >= 4 else 1
PROGRESS_EVERY_S = 30.0  # Often enough to show life, rare enough for a log file.
_POLL_S = 0.1

State = Literal["ready", "waiting", "building", "still building", "built", "failed"]


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """Something to tell the person who waits.

    ``ready`` is a tool that was built before; ``waiting`` one that another process is building just then.
    """

    state: State
    tool: Tool
    log: Path
    position: int = 0
    """Its place among the tools to be built, from 1."""
    total: int = 0
    elapsed_s: float = 0.0


Report = Callable[[BuildEvent], None]


def ensure_tools(parts: Iterable[str], report: Report) -> Toolset:
    """Return the tools of these parts, building first what is missing.

    ``report`` is called in the caller's thread, while it waits.

    Raises:
        ClusterError: Go is missing or too old, or a build failed; names the tool and shows the end of its log.
    """
    tools = tools_of(parts)
    settings = _go_settings(tools)
    builds = {tool.name: build_of(tool, settings) for tool in tools}
    missing = []
    for build in builds.values():
        if build.exists:
            report(BuildEvent("ready", build.tool, _log_of(build.tool)))
        else:
            missing.append(build)
    if missing:
        _build_all(missing, report)
    return Toolset(builds)


@dataclass(slots=True)
class _Job:
    """A build on its way: first for the lock of its module, then for the compiler."""

    build: Build
    position: int
    started: float
    lock: TextIOWrapper
    process: Process | None = None
    scratch: Path = Path()
    told_s: float = 0.0
    waiting: bool = False

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started


def _build_all(missing: list[Build], report: Report) -> None:
    """Run the builds; when one fails or we are interrupted, neither a process nor a half-made folder stays."""
    (cache_folder() / "tools").mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(prefix=".building-", dir=cache_folder() / "tools"))
    table = ProcessTable(workshop)
    guard = Guard(table, [workshop])
    try:
        _Foreman(table, report, missing).run()
    finally:
        table.stop(table.alive(), patience_s=1.0)
        guard.dismiss()
        shutil.rmtree(workshop, ignore_errors=True)


class _Foreman:
    """Keeps up to `AT_ONCE` builds going, in order, no two of one module."""

    def __init__(self, table: ProcessTable, report: Report, missing: list[Build]) -> None:
        self._table = table
        self._report = report
        self._waiting = list(enumerate(missing, start=1))
        self._total = len(missing)
        self._jobs: list[_Job] = []

    def run(self) -> None:
        try:
            while self._waiting or self._jobs:
                self._take_on()
                for job in list(self._jobs):
                    if self._advance(job):
                        job.lock.close()
                        self._jobs.remove(job)
                time.sleep(_POLL_S)
        finally:
            for job in self._jobs:
                job.lock.close()

    def _take_on(self) -> None:
        for position, build in list(self._waiting):
            busy = {job.build.tool.folder for job in self._jobs}
            if len(self._jobs) < AT_ONCE and build.tool.folder not in busy:
                lock = (cache_folder() / "tools" / f"{build.tool.folder}.lock").open("w")
                self._jobs.append(_Job(build, position, time.monotonic(), lock))
                self._waiting.remove((position, build))

    def _advance(self, job: _Job) -> bool:
        """One look at a job; True when it is done."""
        if job.process is None:
            return self._begin(job)
        if job.process.alive and self._table.exit_status(job.process.name) is None:
            if job.elapsed_s - job.told_s > PROGRESS_EVERY_S:
                job.told_s = job.elapsed_s
                self._tell(job, "still building")
            return False
        self._finish(job)
        return True

    def _begin(self, job: _Job) -> bool:
        """Start the compiler once nobody else builds this module; True when it turns out that somebody has built it."""
        try:
            fcntl.flock(job.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not job.waiting:
                job.waiting = True
                self._tell(job, "waiting")
            return False
        if job.build.exists:
            self._tell(job, "ready")
            return True
        job.started = time.monotonic()
        tool = job.build.tool
        job.scratch = self._table.folder / f"{tool.name}.build"
        log = _log_of(tool)
        log.parent.mkdir(exist_ok=True)
        log.unlink(missing_ok=True)
        arguments = build_arguments(tool, tool.go_mod.read_text())
        arguments[1:1] = ["-o", str(job.scratch / tool.name)]
        self._tell(job, "building")
        job.process = self._table.start(
            tool.name, ["go", *arguments], BUILD_ENVIRONMENT, log=log, working_folder=tool.go_mod.parent
        )
        return False

    def _finish(self, job: _Job) -> None:
        tool = job.build.tool
        status = self._table.exit_status(tool.name)
        if status != 0:
            self._tell(job, "failed")
            raise ClusterError(
                f"{tool.name} could not be built: go ended with status {status}. The last lines of {_log_of(tool)}:\n"
                + last_lines(_log_of(tool)),
                "The first build needs the network (Go's module proxy) and up to 15 GB in Go's cache folders and ours.",
            )
        _copy_assets(tool, job.scratch / "assets")
        job.build.folder.parent.mkdir(exist_ok=True)
        job.scratch.rename(job.build.folder)
        self._tell(job, "built")

    def _tell(self, job: _Job, state: State) -> None:
        tool = job.build.tool
        self._report(BuildEvent(state, tool, _log_of(tool), job.position, self._total, job.elapsed_s))


def _copy_assets(tool: Tool, target: Path) -> None:
    """Keep the files that a cluster loads from the tool's module, so that a warm start needs no module cache."""
    target.mkdir()
    if tool.assets is None:
        return
    module = Path(_go(["list", "-m", "-f", "{{.Dir}}", tool.assets.module], tool.go_mod.parent).strip())
    for pattern in tool.assets.patterns:
        for source in module.glob(pattern):
            shutil.copyfile(source, target / source.name)  # Not copy(): files of the module cache are read-only.


def _go_settings(tools: Iterable[Tool]) -> dict[str, str]:
    """The Go of this machine, after a check that it can build every one of the tools."""
    settings: dict[str, str] = json.loads(_go(["env", "-json", *GO_SETTINGS, "GOTOOLCHAIN"], GO_MODULES))
    for tool in tools:
        check_version(settings, go_line(tool.go_mod.read_text()))
    return settings


def check_version(settings: Mapping[str, str], needed: str) -> None:
    """Refuse a Go that is older than ``needed``, unless it may fetch a newer one for itself.

    Raises:
        ClusterError: with the versions and both ways out.
    """
    present = settings["GOVERSION"].removeprefix("go")
    may_fetch = settings.get("GOTOOLCHAIN", "").rpartition("+")[2] == "auto"  # Also in the form go1.27.0+auto.
    if may_fetch or _release(present) >= _release(needed):
        return
    raise ClusterError(
        f"Go {present} is too old: the local cluster is built with Go {needed} or later",
        "Install a later Go (https://go.dev/dl), or let Go fetch it: go env -w GOTOOLCHAIN=auto",
    )


def _release(version: str) -> tuple[int, ...]:
    """``1.26rc1`` as (1, 26); a development version counts as later than any."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, numbers.group().split("."))) if numbers else (1_000,)


def _go(arguments: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            ["go", *arguments],
            cwd=folder,
            env={**os.environ, **BUILD_ENVIRONMENT},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise ClusterError(
            "Go is not installed, or not on PATH: the local cluster is built from Go modules",
            "Install Go 1.26 or later (https://go.dev/dl) and put its bin folder on PATH.",
        ) from None
    if done.returncode != 0:
        raise ClusterError(f"`go {' '.join(arguments)}` failed in {folder}:\n{done.stderr.strip()}")
    return done.stdout


def _log_of(tool: Tool) -> Path:
    return cache_folder() / "build-logs" / f"{tool.name}.log"
