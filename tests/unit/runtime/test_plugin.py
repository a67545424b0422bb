"""vLLM's general plugin: nothing that happens in it may keep vLLM from starting."""

from __future__ import annotations

import logging
import sys
from types import ModuleType

import pytest

from outrider_runtime import plugin
from tests.unit.runtime.fake_vllm import WORKER, FakeVllm, config

LOGGER = "vllm.outrider"


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(plugin, "_said", False)


def hide_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)  # type: ignore[arg-type]


def break_vllm(monkeypatch: pytest.MonkeyPatch, version: object) -> None:
    """A vLLM with a version and nothing else."""
    package, module = ModuleType("vllm"), ModuleType("vllm.version")
    package.__path__ = []
    module.__dict__["__version__"] = version
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, "vllm.version", module)


def test_without_vllm_it_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    hide_vllm(monkeypatch)
    with caplog.at_level(logging.WARNING, LOGGER):
        plugin.register()
    assert "K stays as vLLM was started" in caplog.text
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize(
    ("version", "words"),
    [
        pytest.param("0.31.2", "vLLM 0.31.2 was never tried", id="an older one"),
        pytest.param("0.33.0", "vLLM 0.33.0 has no module", id="a known one that is not what it was"),
        pytest.param(None, "vLLM None was never tried", id="no version at all"),
    ],
)
def test_a_strange_vllm_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: object, words: str
) -> None:
    break_vllm(monkeypatch, version)
    with caplog.at_level(logging.WARNING, LOGGER):
        plugin.register()
    assert words in caplog.text


def test_it_says_so_once_a_process(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    hide_vllm(monkeypatch)
    with caplog.at_level(logging.WARNING, LOGGER):
        plugin.register()
        plugin.register()
    assert len(caplog.records) == 1


def test_a_known_vllm_is_made_controllable_and_nothing_is_said(
    vllm: FakeVllm, caplog: pytest.LogCaptureFixture
) -> None:
    plugin.register()
    plugin.register()  # vLLM calls it more than once in some processes
    assert vllm.scheduler(config()).outrider.facts.max_speculative_tokens == 3
    assert vllm.worker.init_device.outrider is True
    assert caplog.records == []


def test_a_vllm_that_does_not_let_itself_be_changed_starts(vllm: FakeVllm, caplog: pytest.LogCaptureFixture) -> None:
    class Locked(type):
        def __setattr__(cls, name: str, value: object) -> None:
            raise TypeError("this class is locked")

    class WorkerWrapperBase(metaclass=Locked):
        def init_device(self) -> None:
            """As vLLM's."""

    vllm.replace(WORKER, "WorkerWrapperBase", WorkerWrapperBase)
    with caplog.at_level(logging.WARNING, LOGGER):
        plugin.register()
    assert "no guard for the drafter's CUDA graphs: this class is locked" in caplog.text
    assert vllm.scheduler(config()).outrider is not None  # K can be told all the same
