"""What a run folder says about its cluster, for those who did not start it: `status`, `down` and the clean-up after a
crash.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.testbed.places import cache_folder
from tests.testbed.processes import ProcessTable, start_time_of
from tests.testbed.tools import TOOLS

RUNS_KEPT = 10  # Ended runs whose logs stay: enough to look into the last failures.
RUN_PREFIX = "run-"
"""Begins the names of folders that were made for a run without a name of its own."""

INFRASTRUCTURE = frozenset(tool.name for tool in TOOLS)
"""Names of the processes that are the cluster, as opposed to what runs on it."""

_STATE_FILE = "cluster.json"
_LEFTOVERS = ("data", "kubeconfigs", "processes", "kubeconfig", _STATE_FILE)

Owner = tuple[int, int]
"""Process id and start time."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster that runs, or did when its state was last written."""

    folder: str
    parts: tuple[str, ...]
    slot: int
    kubeconfig: str
    kubectl: str
    prometheus_url: str
    """Empty without Prometheus."""
    owner: Owner | None
    """The process with which the cluster ends; None for one that lives until `down`."""

    @property
    def path(self) -> Path:
        return Path(self.folder)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def table(self) -> ProcessTable:
        return ProcessTable(self.path)

    @property
    def abandoned(self) -> bool:
        """Whether it should have ended, because its owner has."""
        return self.owner is not None and start_time_of(self.owner[0]) != self.owner[1]

    @property
    def running(self) -> bool:
        """Whether any process of it lives."""
        return bool(self.table.alive())

    def write(self) -> None:
        """Save it in its folder, whole or not at all."""
        part = self.path / f"{_STATE_FILE}.new"
        part.write_text(json.dumps(asdict(self), indent=2))
        part.rename(self.path / _STATE_FILE)


def this_process() -> Owner:
    """The owner that a cluster of this process has."""
    return os.getpid(), start_time_of(os.getpid()) or 0


def clusters_folder() -> Path:
    """Where clusters without a run folder of the caller's are kept."""
    return cache_folder() / "clusters"


def read_state(folder: Path) -> ClusterState | None:
    """The state in a run folder; None where no cluster runs or has crashed."""
    try:
        found = json.loads((folder / _STATE_FILE).read_text())
    except FileNotFoundError:
        return None
    owner = found.pop("owner")
    return ClusterState(**{**found, "parts": tuple(found["parts"])}, owner=tuple(owner) if owner else None)


def all_states() -> Iterator[ClusterState]:
    """Every cluster under `clusters_folder`, by name."""
    for path in sorted(clusters_folder().glob("*")):
        state = read_state(path)
        if state is not None:
            yield state


def end(table: ProcessTable) -> None:
    """End the processes of a cluster.

    Those that tests and the demo have started may finish in order, while the API server still answers; the cluster's
    own have nothing to save.
    """
    table.stop([process for process in table.alive() if process.name not in INFRASTRUCTURE])
    table.stop(table.alive(), signal.SIGKILL)


def leftovers(folder: Path) -> list[Path]:
    """Everything of an ended cluster but its logs."""
    return [folder / name for name in _LEFTOVERS]


def discard(folder: Path) -> None:
    """Remove everything of an ended cluster but its logs."""
    for path in leftovers(folder):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def clean_up() -> None:
    """End clusters whose owner and guard both died, and forget the oldest logs."""
    for state in all_states():
        if state.abandoned:
            end(state.table)
            discard(state.path)
    ended = [path for path in clusters_folder().glob(f"{RUN_PREFIX}*") if not (path / _STATE_FILE).exists()]
    for path in sorted(ended, key=_changed_s)[:-RUNS_KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def _changed_s(path: Path) -> float:
    """When a folder was changed last; one that somebody else has just removed counts as the oldest."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
