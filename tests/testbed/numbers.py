"""Every number of replicas that a Deployment ever has, by a watch: a dip of a moment counts."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tests.testbed.cluster import Cluster
from tests.testbed.service import ServiceView
from tests.testbed.state import read_state

_SHOWN = '-o=jsonpath={.spec.replicas} {.metadata.resourceVersion}{"\\n"}'
_WATCH = 'while :; do "$0" "$@" 2>/dev/null; sleep 0.1; done'
"""A watch ends, with a complaint, when the API server does not answer for a while: the next one begins with the number
of that moment."""


class Numbers:
    """Watches one Deployment; use it as a context manager, and ask `seen` at any time."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster, self._where = cluster, ("-n", namespace, name)
        self._view = ServiceView(cluster, namespace, name)
        self._process = f"replicas-{namespace}-{name}"
        self._open = False

    @property
    def seen(self) -> list[int]:
        """Numbers in the order in which they came, up to the present one. One that a write left as it was comes
        again."""
        if self._open:
            self._catch_up()
        return [number for number, _ in self._lines()]

    def _catch_up(self) -> None:
        """Wait until the watch, which may be behind, has told of the Deployment as it is now."""
        live = self._view.get("deployment")
        if live:
            present = int(live["metadata"]["resourceVersion"])
            self._cluster.wait_until("number of now", lambda: any(version >= present for _, version in self._lines()))

    def _lines(self) -> list[tuple[int, int]]:
        """Numbers and resource versions, as far as the watch is; a line that is still being written is not among
        them."""
        whole, _, _ = (self._cluster.logs / f"{self._process}.log").read_text().rpartition("\n")
        return [(int(number), int(version)) for number, version in map(str.split, whole.splitlines())]

    def __enter__(self) -> Self:
        state = read_state(self._cluster.run_dir)
        assert state is not None
        arguments = ["get", "deployment", *self._where, "--watch", _SHOWN]
        watch = ["/bin/sh", "-c", _WATCH, state.kubectl, f"--kubeconfig={state.kubeconfig}", *arguments]
        self._cluster.start_process(self._process, watch)
        self._cluster.wait_until("first number of replicas", lambda: bool(self._lines()))
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._catch_up()
        finally:
            self._open = False
            self._cluster.stop_process(self._process)
