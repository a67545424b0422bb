"""Every number of replicas that a Deployment ever has, by a watch: a dip of a moment counts."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tests.testbed.cluster import Cluster
from tests.testbed.state import read_state

_WATCH = 'while :; do "$0" "$@" 2>/dev/null; sleep 0.1; done'
"""A watch ends, with a complaint, when the API server does not answer for a while: the next one begins with the number
of that moment."""


class Numbers:
    """Watches one Deployment; use it as a context manager, and ask `seen` at any time."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster, self._where = cluster, ("-n", namespace, name)
        self._process = f"replicas-{namespace}-{name}"

    @property
    def seen(self) -> list[int]:
        """Numbers in the order in which they came; one that a write left as it was comes again."""
        return [int(line) for line in (self._cluster.logs / f"{self._process}.log").read_text().split()]

    def __enter__(self) -> Self:
        state = read_state(self._cluster.run_dir)
        assert state is not None
        arguments = ["get", "deployment", *self._where, "--watch", '-o=jsonpath={.spec.replicas}{"\\n"}']
        watch = ["/bin/sh", "-c", _WATCH, state.kubectl, f"--kubeconfig={state.kubeconfig}", *arguments]
        self._cluster.start_process(self._process, watch)
        self._cluster.wait_until("first number of replicas", lambda: bool(self.seen), 15)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.stop_process(self._process)
