"""Fixtures of the plugin's tests."""

from __future__ import annotations

import pytest

from tests.unit.runtime.fake_vllm import FakeVllm


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> FakeVllm:
    """A vLLM that the plugin knows."""
    return FakeVllm(monkeypatch)
