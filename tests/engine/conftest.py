"""The engines that these tests run against, each started once a session: the real one takes half a minute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine import environment, server
from tests.engine.client import EngineUnderTest
from tests.engine.server import Start

MAX_WAITING = 24  # of the real engine's queue: more than its 16 running requests, few enough to be exceeded by a test


@pytest.fixture(scope="session")
def simulated_engine() -> Iterator[EngineUnderTest]:
    """The simulated engine."""
    with server.simulated(Start("simulated")) as engine:
        yield engine


@pytest.fixture(scope="session")
def real_engine() -> Iterator[EngineUnderTest]:
    """A real vLLM; skips the test where its environment was not made."""
    need_environment()
    with server.real(Start("real", environment={"OUTRIDER_MAX_WAITING": str(MAX_WAITING)})) as engine:
        yield engine


def need_environment() -> None:
    """Skip the test, saying why, unless the engine's environment is there."""
    if not environment.is_ready():
        pytest.skip(f"no real vLLM here: {environment.folder()} was not made; {environment.HOW_TO_MAKE}")
