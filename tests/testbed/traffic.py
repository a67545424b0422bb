"""Requests for a service on a cluster that ``up`` started: ``python -m tests.testbed.traffic chat``.

Keeps a number of requests in flight over the ready engines until Ctrl-C, and prints what became of them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, cast

from tests.testbed.cluster import Cluster
from tests.testbed.errors import ClusterError
from tests.testbed.load import Load
from tests.testbed.service import ServiceView
from tests.testbed.state import ClusterState, clusters_folder, read_state

EVERY_S = 5.0
"""Between two lines."""


class _Seen(ServiceView):
    """A service seen through kubectl, on a cluster of another process."""

    def __init__(self, state: ClusterState, namespace: str, name: str) -> None:
        super().__init__(cast(Cluster, None), namespace, name)
        self._state = state

    def list(self, kind: str) -> list[dict[str, Any]]:
        selector = f"serving.outrider.dev/service={self.name}"
        done = subprocess.run(
            [self._state.kubectl, "get", kind, "--namespace", self.namespace, "--selector", selector, "-o", "json"],
            env=os.environ | {"KUBECONFIG": str(self._state.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout)["items"] if done.returncode == 0 else []


class Traffic(Load):
    """A load on such a service."""

    def __init__(self, view: ServiceView, concurrency: int, acceptance: float) -> None:
        super().__init__(cast(Cluster, None), view.namespace, view.name, concurrency, acceptance)
        self._view = view


def main(arguments: list[str] | None = None) -> int:
    """Send requests until told to stop."""
    options = _parser().parse_args(arguments)
    state = read_state(clusters_folder() / options.name)
    if state is None or not state.running:
        raise ClusterError(f"cluster {options.name!r} does not run", "Start it: python -m tests.testbed up")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Traffic(_Seen(state, options.namespace, options.service), options.requests, options.acceptance) as load:
            while True:
                time.sleep(EVERY_S)
                outcomes = ", ".join(f"{count} times {what}" for what, count in sorted(load.outcomes.items()))
                sys.stdout.write(f"{options.requests} requests in flight; answered: {outcomes or 'none yet'}\n")
                sys.stdout.flush()
    except KeyboardInterrupt:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed.traffic", description=__doc__)
    parser.add_argument("service", help="name of the SpeculativeInferenceService")
    parser.add_argument("--namespace", "-n", default="ml", help="its namespace (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=32, help="requests in flight (default: %(default)s)")
    parser.add_argument(
        "--acceptance",
        type=float,
        default=0.85,
        help="how often the drafter's next token is right, 0 to 1 (default: %(default)s)",
    )
    parser.add_argument("--name", default="default", help="the cluster's name (default: %(default)s)")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClusterError as error:
        sys.exit(f"error: {error.message}. {error.remedy}")
