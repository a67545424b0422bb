"""One replay for the tests of its document and its page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outrider.replay.quota import report
from outrider.replay.quota.run import run

from .builders import manifest, two


@pytest.fixture(scope="package")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Chat names a PriorityClass without its number, and is busy from the second minute on; code is busy all along."""
    experiment = two(
        tmp_path_factory.mktemp("rates"), 3, chat=[1.0, 12.0, 12.0], code=[12.0] * 3, priorities={"code": 7}
    )
    named = manifest("chat", placement={"priorityClassName": "second"})
    services = dict(experiment.services) | {"chat": replace(experiment.services["chat"], manifest=named)}
    experiment = replace(experiment, services=services)
    return report.document(experiment, run(experiment, lambda _share: None))
