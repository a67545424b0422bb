"""Helm: the program, with its files in a folder of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.errors import ClusterError
from tests.testbed.places import REPOSITORY

CHART = REPOSITORY / "charts" / "outrider"


class Helm:
    """Runs Helm; ``home`` takes its settings and caches, so that those of the user are neither read nor changed."""

    def __init__(self, binary: Path, home: Path, kubeconfig: Path | None = None) -> None:
        self._binary, self._home, self._kubeconfig = binary, home, kubeconfig

    def on(self, kubeconfig: Path) -> Helm:
        """The same, on a cluster."""
        return Helm(self._binary, self._home, kubeconfig)

    def run(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command.

        Raises:
            ClusterError: it failed, and ``check`` was not turned off.
        """
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBECONFIG"))
        }
        environment |= {f"HELM_{kind}_HOME": str(self._home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        # One that is not there keeps Helm from any other cluster.
        environment["KUBECONFIG"] = str(self._kubeconfig or self._home / "no-cluster")
        done = subprocess.run([self._binary, *arguments], env=environment, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            words = " ".join(map(str, arguments))
            raise ClusterError(f"helm {words} ended with status {done.returncode}:\n{done.stderr.strip()}")
        return done

    def template(self, *arguments: str | Path, chart: Path = CHART) -> str:
        """The chart as text, as it would be installed under the name that the documentation uses."""
        return self.run("template", "outrider", chart, "--namespace", "outrider-system", *arguments).stdout

    def render(self, *arguments: str | Path, chart: Path = CHART) -> list[dict[str, Any]]:
        """The chart's objects."""
        return [one for one in yaml.safe_load_all(self.template(*arguments, chart=chart)) if one]
