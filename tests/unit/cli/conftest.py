"""Commands against a cluster that is played, with an environment that says nothing about one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.cli.main import app
from tests.unit.cli.fake_cluster import FakeCluster, serving

Ask = Callable[..., Any]
"""``ask(cluster, *words)``: run a command against a cluster; gives click's result."""


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Ask]:
    for name in [name for name in os.environ if name.startswith(("OUTRIDER_", "KUBE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with ExitStack() as servers:

        def run(cluster: FakeCluster, *words: str) -> Any:
            monkeypatch.setenv("KUBECONFIG", str(servers.enter_context(serving(cluster, tmp_path))))
            told = [word.replace("STORE", cluster.address) for word in words]
            return CliRunner().invoke(app, told)

        yield run
