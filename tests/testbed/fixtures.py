"""Pytest fixtures: one API server and one whole cluster a test session, each started when a test first asks for it.

A session so runs at most two clusters, and those that a module starts with `start_cluster`. Under pytest-xdist every
worker is a session of its own; ``--dist loadfile`` keeps the tests of a module on one, for they share a cluster.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.testbed import rights
from tests.testbed.build import BuildEvent, ensure_tools
from tests.testbed.cluster import Cluster
from tests.testbed.helm import Helm
from tests.testbed.progress import build_line, duration
from tests.testbed.tools import ENGINES, HELM, KEDA, KWOK, PROMETHEUS, PROMTOOL

_STARTED = pytest.StashKey[list[tuple[Cluster, float]]]()
_FIXTURES = frozenset({"start_cluster", "api_cluster", "cluster", "helm", "promtool"})


class StartCluster(Protocol):
    """Start a cluster; takes what `Cluster` takes."""

    def __call__(self, parts: Iterable[str] = (), **options: Any) -> Cluster: ...


@pytest.fixture(scope="module")
def start_cluster(request: pytest.FixtureRequest) -> Iterator[StartCluster]:
    """Starts clusters that end with the module, for tests that need their own: other options, or faults put in.

    A cluster that nobody asks any more still takes a tenth of a core, and the notifiers of the file system that Linux
    allows a user are used up by a dozen.
    """
    with _starter(request.config) as start:
        yield start


@pytest.fixture(scope="session")
def api_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """An API server alone: schema, CEL, server-side apply, RBAC; no controller runs."""
    with _starter(request.config) as start:
        yield start()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Everything: controllers, nodes with GPUs, simulated engines, Prometheus and KEDA."""
    with _starter(request.config) as start:
        yield start({KWOK, PROMETHEUS, KEDA, ENGINES})


@contextlib.contextmanager
def _starter(config: pytest.Config) -> Iterator[StartCluster]:
    started = config.stash.setdefault(_STARTED, [])
    show, folder = _shower(config), config.getoption("--record-rights")
    with contextlib.ExitStack() as endings:

        def start(parts: Iterable[str] = (), **options: Any) -> Cluster:
            cluster = Cluster(parts, report=show, **options)
            began = time.monotonic()
            if folder is not None:  # once the cluster has ended, and with it its log
                endings.callback(rights.record, cluster.logs, folder)
            endings.enter_context(cluster)
            started.append((cluster, time.monotonic() - began))
            return cluster

        yield start


@pytest.fixture(scope="session")
def promtool(request: pytest.FixtureRequest) -> Path:
    """Prometheus' tool that checks and tests rules."""
    return ensure_tools({PROMTOOL}, _shower(request.config))[PROMTOOL]


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm, on no cluster."""
    tools = ensure_tools({HELM}, _shower(request.config))
    return Helm(tools["helm"], tmp_path_factory.mktemp("helm"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """See `tests.testbed.rights`."""
    parser.addoption("--record-rights", type=Path, metavar="FOLDER", help="leave there what the operator asked for")


def pytest_configure(config: pytest.Config) -> None:
    """Know the marks that are set below."""
    config.addinivalue_line("markers", "cluster: needs the local cluster (built on first use)")


@pytest.hookimpl(tryfirst=True)  # Before -m looks at the marks.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests on clusters."""
    for item in items:
        if _FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say where the logs of its clusters are when a test fails."""
    report = yield
    if report.failed:
        used = [each for each in getattr(item, "funcargs", {}).values() if isinstance(each, Cluster)]
        report.sections.extend(("local cluster", f"logs: {each.logs}") for each in used)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the clusters of the session."""
    for cluster, seconds in config.stash.get(_STARTED, []):
        parts = ", ".join(sorted(cluster.parts))
        terminalreporter.write_line(f"local cluster ({parts}): ready after {duration(seconds)}, logs in {cluster.logs}")


def _shower(config: pytest.Config) -> Callable[[BuildEvent], None]:
    """Print build progress past pytest's capture: a first build takes long enough to look like a hang."""
    capture = config.pluginmanager.getplugin("capturemanager")
    reporter = config.pluginmanager.getplugin("terminalreporter")

    def show(event: BuildEvent) -> None:
        line = build_line(event)
        if line is not None and reporter is not None:  # A worker of pytest-xdist has no terminal.
            uncaptured: AbstractContextManager[None] = (
                capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
            )
            with uncaptured:
                reporter.ensure_newline()
                reporter.write_line(line, flush=True)

    return show
