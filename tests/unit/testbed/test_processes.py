"""Processes are found again by their records, ended when asked, and never mistaken for others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.testbed.errors import ClusterError
from tests.testbed.places import REPOSITORY
from tests.testbed.processes import Process, ProcessTable
from tests.testbed.slots import claim_slot
from tests.testbed.state import ClusterState, all_states, clean_up, clusters_folder

SLEEP = ["sleep", "1000"]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for another process, which no fake clock can hurry."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ProcessTable]:
    """A table whose processes end with the test."""
    table = ProcessTable(tmp_path)
    yield table
    table.stop(table.alive(), signal.SIGKILL)


def test_a_process_is_known_to_another_table_of_the_folder(table: ProcessTable) -> None:
    started = table.start("sleeper", SLEEP)
    assert ProcessTable(table.folder).alive() == [started]


def test_output_and_environment_go_where_they_should(table: ProcessTable) -> None:
    started = table.start("speaker", ["sh", "-c", 'echo "$WORD"; echo "$0" >&2', "a b"], {"WORD": "hello"})
    wait_for(lambda: not started.alive)
    assert started.log.read_text() == "hello\na b\n"
    assert table.exit_status("speaker") == 0


def test_a_name_is_not_taken_twice_while_its_process_lives(table: ProcessTable) -> None:
    started = table.start("sleeper", SLEEP)
    with pytest.raises(ClusterError, match=f"runs already, as process {started.pid}"):
        table.start("sleeper", SLEEP)
    table.stop([started])
    assert table.exit_status("sleeper") == -signal.SIGTERM
    assert table.restart("sleeper").pid != started.pid


def test_one_that_ends_at_once_has_started_all_the_same(table: ProcessTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a look for its record and one at its end it may have written the one and come to the other."""
    find = ProcessTable.find

    def late(self: ProcessTable, name: str) -> Process | None:
        found = find(self, name)
        if found is None and name in self._children:
            self._children[name].wait()
        return found

    monkeypatch.setattr(ProcessTable, "find", late)
    assert table.start("brief", ["true"]).name == "brief"


def test_a_process_that_does_not_listen_is_killed_in_the_end(table: ProcessTable) -> None:
    stubborn = table.start("stubborn", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    wait_for(lambda: stubborn.log.read_text() == "ready\n")
    table.stop([stubborn], patience_s=0.1)
    assert table.exit_status("stubborn") == -signal.SIGKILL


def test_what_a_process_started_ends_with_it(table: ProcessTable) -> None:
    parent = table.start("parent", ["sh", "-c", "sleep 1000 & echo $!; wait"])
    wait_for(lambda: parent.log.read_text().endswith("\n"))
    child = int(parent.log.read_text())
    table.stop([parent])

    def gone() -> bool:
        try:
            return "\nState:\tZ" in Path(f"/proc/{child}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_for(gone)


def test_a_process_id_used_again_is_not_the_process(table: ProcessTable) -> None:
    started = table.start("sleeper", SLEEP)
    other = replace(started, start_time=started.start_time - 1)
    other.signal(signal.SIGKILL)
    assert not other.alive
    assert started.alive


def test_one_that_ended_by_itself_is_lost_and_one_that_was_stopped_is_not(table: ProcessTable) -> None:
    ended = table.start("ended", ["false"])
    stopped = table.start("stopped", SLEEP)
    table.stop([stopped])
    wait_for(lambda: not ended.alive)
    assert table.lost() == ["ended"]


_OWNER = """
import sys
from pathlib import Path
from tests.testbed.processes import Guard, ProcessTable
folder = Path(sys.argv[1])
table = ProcessTable(folder)
guard = Guard(table, [folder / "secret"])
(folder / "secret").mkdir()
table.start("sleeper", ["sleep", "1000"])
if sys.argv[2] == "dismissed":
    guard.dismiss()
print("ready", flush=True)
input()
"""


def start_owner(folder: Path, guard: str) -> subprocess.Popen[str]:
    """Another Python that starts a process under a guard."""
    command = [sys.executable, "-c", _OWNER, str(folder), guard]
    owner = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    return owner


def test_a_guard_ends_what_a_killed_owner_left(tmp_path: Path) -> None:
    owner = start_owner(tmp_path, "on guard")
    (sleeper,) = ProcessTable(tmp_path).alive()
    owner.kill()
    owner.communicate()
    wait_for(lambda: not sleeper.alive and not (tmp_path / "secret").exists())


def test_without_a_guard_processes_outlive_their_owner(table: ProcessTable) -> None:
    owner = start_owner(table.folder, "dismissed")
    owner.communicate()
    assert [process.name for process in table.alive()] == ["sleeper"]
    assert (table.folder / "secret").exists()


def test_the_lock_of_a_slot_lives_as_long_as_a_process_of_its_cluster(cache: Path, tmp_path: Path) -> None:
    slot = claim_slot(engine_ports=False)
    assert slot.lock is not None
    table = ProcessTable(tmp_path, inherit=[slot.lock])
    sleeper = table.start("sleeper", SLEEP)
    slot.release()

    other = claim_slot(engine_ports=False)
    assert other.number != slot.number
    other.release()

    table.stop([sleeper])
    again = claim_slot(engine_ports=False)
    assert again.number == slot.number
    again.release()


@pytest.mark.parametrize(
    ("owner_lives", "stays"),
    [
        pytest.param(True, True, id="the owner lives"),
        pytest.param(False, False, id="the owner is dead"),
        pytest.param(None, True, id="it lives until down"),
    ],
)
def test_abandoned_clusters_are_cleaned_up(cache: Path, owner_lives: bool | None, stays: bool) -> None:
    folder = clusters_folder() / "some"
    (folder / "data").mkdir(parents=True)
    table = ProcessTable(folder)
    etcd = table.start("etcd", SLEEP)
    owner = {True: (etcd.pid, etcd.start_time), False: (os.getpid(), 1), None: None}[owner_lives]
    ClusterState(str(folder), ("control",), 16, "kubeconfig", "kubectl", "", owner).write()

    clean_up()

    assert etcd.alive is stays
    assert (folder / "data").exists() is stays
    assert [state.running for state in all_states()] == [True] * stays
    assert (folder / "logs" / "etcd.log").exists(), "logs stay"
    table.stop(table.alive(), signal.SIGKILL)


def test_a_run_whose_logs_somebody_else_removes_meanwhile_is_no_fault(cache: Path) -> None:
    for index in range(10):
        (clusters_folder() / f"run-{index:02}").mkdir(parents=True)
    (clusters_folder() / "run-gone").symlink_to("nowhere")  # listed, and not there when it is looked at
    clean_up()
    assert len(list(clusters_folder().glob("run-0*"))) == 10


def test_only_the_logs_of_the_last_runs_stay(cache: Path) -> None:
    for index in range(13):
        path = clusters_folder() / f"run-{index:02}"
        path.mkdir(parents=True)
        os.utime(path, (index, index))
    (clusters_folder() / "mine").mkdir()
    clean_up()
    assert [path.name for path in sorted(clusters_folder().iterdir())] == [
        "mine",
        *(f"run-{index:02}" for index in range(3, 13)),
    ]
