"""A cluster: start it, use it, end it.

::

    with Cluster({"kwok", "prometheus", "keda"}) as cluster:
        cluster.kubectl("apply", "-f", "-", input=manifest)

It is ready when the ``with`` block begins, and nothing of it is left when the block ends, or when this process dies.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tests.testbed import prometheus, startup
from tests.testbed.api import Api, write_kubeconfig
from tests.testbed.build import Report, ensure_tools
from tests.testbed.errors import ClusterError
from tests.testbed.layout import Layout, make_certificates
from tests.testbed.places import private_folder
from tests.testbed.processes import Guard, Process, ProcessTable
from tests.testbed.progress import line_reporter
from tests.testbed.slots import claim_slot
from tests.testbed.startup import Options
from tests.testbed.state import (
    RUN_PREFIX,
    ClusterState,
    clean_up,
    clusters_folder,
    discard,
    end,
    leftovers,
    read_state,
    this_process,
)
from tests.testbed.tools import KWOK, PROMETHEUS, close_over

PATIENCE_S = 60.0
"""For a process that was asked to end: longer than any needs, since one that is killed ends with another status."""
NOTE_LENGTH = 4000
TOKEN_LIFETIME_S = 7 * 24 * 3600  # A cluster of a workstation may be left up for days.

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class _Running:
    """What exists only while the cluster runs."""

    layout: Layout
    table: ProcessTable
    api: Api


class Cluster:
    """A local cluster of the parts asked for, and of what they need.

    Parts: ``control`` (etcd and the API server, always), ``kwok`` (nodes, pods, controllers, scheduler),
    ``prometheus``, ``keda``, ``engines`` (the simulator behind engine pods).
    """

    def __init__(
        self,
        parts: Iterable[str] = (),
        *,
        run_dir: Path | None = None,
        owned: bool = True,
        report: Report | None = None,
        dilation: float = 1.0,
        scrape_interval_s: float = 2.0,
        nodes: int = 2,
        gpus_per_node: int = 8,
        hpa_sync_s: float = 3.0,
        hpa_downscale_s: float = 10.0,
        request_timeout_s: float = 60.0,
    ) -> None:
        """Nothing is started yet.

        ``run_dir`` is made if need be, and by default a folder of the user's cache. An ``owned`` cluster ends with this
        process, any other one only by `stop` or ``python -m tests.testbed down``. ``report`` gets the progress of
        builds, which by default is printed. ``dilation`` is the simulator's: how many times slower than the profile the
        engines run.
        """
        self.parts = close_over(parts)
        self.run_dir = (
            run_dir or clusters_folder() / f"{RUN_PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{id(self):x}"
        )
        self._owned = owned
        self._report = report or line_reporter()
        self._options = Options(
            dilation, scrape_interval_s, nodes, gpus_per_node, hpa_sync_s, hpa_downscale_s, request_timeout_s
        )
        self._running: _Running | None = None
        self._ending = contextlib.ExitStack()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.run_dir / "kubeconfig"

    @property
    def logs(self) -> Path:
        """The folder of all logs; it stays when the cluster ends."""
        return self.run_dir / "logs"

    @property
    def prometheus_url(self) -> str:
        """Where Prometheus answers; only with that part."""
        if PROMETHEUS not in self.parts:
            raise ClusterError("this cluster has no Prometheus", "Ask for the part `prometheus`.")
        return self._now.layout.prometheus_url

    @property
    def pod_range(self) -> str:
        """The addresses that pods of this cluster, and of no other one, get."""
        return self._now.layout.slot.pod_range

    def start(self) -> None:
        """Build what is missing, start everything and wait until it is ready; nothing is left behind if that fails.

        Raises:
            ClusterError: with what went wrong and the end of the log concerned.
        """
        startup.check(self.parts)
        tools = ensure_tools(self.parts, self._report)
        clean_up()
        self._take_folder()
        self._ending.callback(discard, self.run_dir)
        try:
            slot = claim_slot(engine_ports=KWOK in self.parts)
            self._ending.callback(slot.release)
            layout = Layout(self.run_dir, slot, tools, make_certificates(self.run_dir / "data" / "pki"))
            table = ProcessTable(self.run_dir, inherit=() if slot.lock is None else (slot.lock,))
            state = ClusterState(
                folder=str(self.run_dir),
                parts=tuple(sorted(self.parts)),
                slot=slot.number,
                kubeconfig=str(self.kubeconfig),
                kubectl=str(tools["kubectl"]),
                prometheus_url=layout.prometheus_url if PROMETHEUS in self.parts else "",
                owner=this_process(),
            )
            state.write()
            guard = Guard(table, leftovers(self.run_dir))
            self._ending.callback(guard.dismiss)
            self._ending.callback(end, table)
            self._running = _Running(layout, table, startup.administrator(layout))
            startup.start(layout, table, self._running.api, self.parts, self._options)
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        if not self._owned:
            replace(state, owner=None).write()
            guard.dismiss()

    def wait_ready(self, timeout_s: float = startup.TIMEOUT_S) -> None:
        """Wait until every part answers and the nodes take pods, such as after the restart of a part."""
        startup.wait_ready(self._now.layout, self._now.table, self._now.api, self.parts, timeout_s)

    def stop(self) -> None:
        """End everything; logs stay. Does nothing when nothing runs."""
        self._running = None
        self._ending.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def kubectl(
        self, *arguments: str, input: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator.

        Raises:
            ClusterError: it failed, and ``check`` was not turned off.
        """
        layout = self._now.layout
        done = subprocess.run(
            [layout.tools["kubectl"], *arguments],
            input=input,
            # Its cache goes by server address, which a later cluster may have again.
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(layout.data / "kubectl-cache")},
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise ClusterError(
                f"kubectl {' '.join(arguments)} ended with status {done.returncode}:\n{done.stderr.strip()}"
            )
        return done

    @property
    def api(self) -> Api:
        """Direct calls as the administrator, for whoever looks often: kubectl costs a fifth of a second each time."""
        return self._now.api

    def port(self, name: str) -> int:
        """A port of 127.0.0.1 that no other cluster uses, the same one for a name each time."""
        return self._now.layout.slot.port(name)

    def start_process(
        self, name: str, arguments: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start a program that ends with the cluster; ``environment`` is added to ours, the log is ``<name>.log``."""
        return self._now.table.start(name, arguments, environment)

    def stop_process(
        self, name: str, number: signal.Signals = signal.SIGTERM, *, patience_s: float = PATIENCE_S
    ) -> int | None:
        """End one process, of the cluster's own or one started here, and return its exit status.

        None if it was started by another run of Python; a negative number is the signal that ended it. It is killed if
        it has not ended after ``patience_s``.
        """
        process = self._now.table.find(name)
        if process is None:
            names = ", ".join(each.name for each in self._now.table.all())
            raise ClusterError(f"there is no process {name!r}", f"This cluster has {names}.")
        self._now.table.stop([process], number, patience_s=patience_s)
        return self._now.table.exit_status(name)

    def restart_process(self, name: str) -> Process:
        """Start a part of the cluster again that was stopped, under the command line it had."""
        return self._now.table.restart(name)

    def start_guarded_prometheus(self, name: str, web: Path) -> None:
        """Start a second Prometheus on the port of that name; it scrapes what the first does and lets in whom ``web``
        says, its web.config.file."""
        self.start_process(name, prometheus.guarded(self._now.layout, name, web))

    def processes(self) -> list[Process]:
        """Everything that runs, in the order of its start."""
        return self._now.table.alive()

    def add_scrape_target(self, job: str, address: str, labels: Mapping[str, str] | None = None) -> None:
        """Have Prometheus scrape ``http://address/metrics`` too, such as the operator's own metrics."""
        prometheus.add_target(self._now.layout.data, job, address, labels or {})

    def exit_status(self, name: str) -> int | None:
        """How a process that was started here ended (negative: the signal); None while it runs."""
        return self._now.table.exit_status(name)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig with a fresh token of a service account, which must exist, and return its path."""
        layout = self._now.layout
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_LIFETIME_S},
        }
        token = self._now.api.create(path, request)["status"]["token"]
        target = self.run_dir / "kubeconfigs" / f"{namespace}-{name}"
        return write_kubeconfig(
            target, layout.server, layout.certificates.authority, f"{namespace}-{name}", {"token": token}
        )

    def wait_for_definition(self, name: str) -> None:
        """Wait until the API server serves a kind, and kubectl finds it: one that is established is listed a moment
        later. `kubectl wait` ends with an error where there is no status yet."""
        asked = ("get", "crd", name, "-o", "jsonpath={.status.conditions[?(@.type=='Established')].status}")
        self.wait_until(f"definition {name}", lambda: self.kubectl(*asked, check=False).stdout == "True")
        self.wait_until(f"kind {name}", lambda: self.kubectl("get", name, "-A", check=False).returncode == 0)

    def wait_until(self, what: str, condition: Callable[[], bool], timeout_s: float = startup.TIMEOUT_S) -> None:
        """Wait for something to come true on this cluster; ``what`` completes "no ... after 60 s" when it does not.

        Raises:
            ClusterError: it did not, or a process of the cluster ended meanwhile.
        """
        startup.wait_until(self._now.table, what, condition, timeout_s)

    def reading(
        self,
        what: str,
        read: Callable[[], Read],
        wanted: Callable[[Read], bool] = bool,
        timeout_s: float = startup.TIMEOUT_S,
    ) -> Read:
        """Read again and again until something is as it is wanted, and return that reading: what is read once more may
        be another thing already, such as a series that ends with a scrape that was late.

        Raises:
            ClusterError: as `wait_until`; its note has the last reading.
        """
        found: list[Read] = []

        def seen() -> bool:
            found[:] = [read()]
            return wanted(found[0])

        try:
            self.wait_until(what, seen, timeout_s)
        except ClusterError as error:
            error.add_note(f"the last reading: {str(found)[1:-1][-NOTE_LENGTH:]}")
            raise
        return found[0]

    @property
    def _now(self) -> _Running:
        if self._running is None:
            raise ClusterError("the cluster does not run", "Call start() first, or use it in a with statement.")
        return self._running

    def _take_folder(self) -> None:
        """Make the run folder ours, with nothing of an earlier run in it."""
        private_folder(self.run_dir)
        previous = read_state(self.run_dir)
        if previous is not None and (previous.running or (previous.owner and not previous.abandoned)):
            raise ClusterError(f"a cluster runs in {self.run_dir} already", "End it first, or choose another name.")
        discard(self.run_dir)
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir()
