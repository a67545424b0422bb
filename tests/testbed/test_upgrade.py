"""From the first chart and its operator to those of today, with a service running: its engines must not notice.

The first chart is a kept package, and the first operator its sources (kept/README.md); both run as they are.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.reconcile.definition import NAME as DEFINITION
from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.helm import Helm
from tests.testbed.test_chart import PATIENCE, RELEASE, Release, engines, ready, serve
from tests.testbed.test_operator import example

KEPT = Path(__file__).with_name("kept")
FIRST = "0.1.0"


class First(Release):
    """The first version, installed."""

    def __init__(self, cluster: Cluster, helm: Helm, folder: Path) -> None:
        super().__init__(cluster, helm, folder)
        with tarfile.open(KEPT / f"operator-{FIRST}.tar.xz") as archive:
            archive.extractall(folder / "first", filter="data")
        parts = (folder / "first" / part for part in ("operator", "runtime"))
        self.code = {"PYTHONPATH": ":".join(map(str, parts))}

    def install(self) -> None:
        package = KEPT / f"outrider-{FIRST}.tgz"
        self.helm.run("install", *RELEASE[:1], package, *RELEASE[1:], "--values", self.values, *PATIENCE)

    def start_first(self) -> None:
        """Its operator, with what its chart gives it."""
        operator.start(self.cluster, self.environment() | self.code)


@pytest.fixture(scope="module")
def release(start_cluster: StartCluster, helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[First]:
    """The first chart and its operator."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=4)
    cluster.kubectl("apply", "-f", str(Path(__file__).with_name("pod_monitor_crd.yaml")))
    cluster.kubectl("create", "namespace", operator.NAMESPACE)
    release = First(cluster, helm, tmp_path_factory.mktemp("release"))
    release.install()
    release.start_first()
    yield release
    operator.stop(cluster)


def definition(cluster: Cluster) -> object:
    """The served schema of our kind."""
    found = cluster.api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{DEFINITION}")
    return found["spec"]["versions"][0]["schema"]


def test_the_operator_that_was_kept_is_the_one_that_runs_first(release: First) -> None:
    command = [sys.executable, "-c", "import outrider; print(outrider.__file__)"]
    told = subprocess.run(command, env=release.code, capture_output=True, text=True, check=True)
    assert str(release.folder) in told.stdout


def test_running_engines_do_not_notice_the_upgrade_from_the_first_version(release: First) -> None:
    view = serve(release, "kept", autoscaling={"minReplicas": 2, "maxReplicas": 2})
    release.cluster.wait_until("two engines", lambda: len(view.ready_addresses()) == 2)
    before, schema = engines(view), definition(release.cluster)
    assert len(set(before.values())) == 1
    operator.stop(release.cluster)
    release.upgrade()
    assert definition(release.cluster) != schema, "the definition is today's now"
    release.start()
    view.apply(example("kept", autoscaling={"minReplicas": 2, "maxReplicas": 3}))
    release.cluster.wait_until("look of the new operator", lambda: view.status()["observedGeneration"] == 2)
    ready(view)
    assert engines(view).items() >= before.items()
    assert len(set(engines(view).values())) == 1, "and engines that come get the same template"
