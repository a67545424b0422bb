"""The engine of a service: what a resource makes of it, and what control is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.api.defaults import resolve
from outrider.api.resource import parse
from outrider.engine.admission import admit
from outrider.manifests import engine_settings
from tests.unit.api.bodies import EXAMPLES
from tests.unit.manifests.builders import container


@pytest.mark.parametrize(
    ("engine", "image", "version", "controllable"),
    [
        pytest.param({}, "ghcr.io/outrider-dev/engine:vllm-0.33.0", "0.33.0", True, id="our image"),
        pytest.param(
            {"version": "0.33.1"}, "ghcr.io/outrider-dev/engine:vllm-0.33.1", "0.33.1", True, id="of another version"
        ),
        pytest.param({"image": "vllm:latest"}, "vllm:latest", None, False, id="an image says nothing of its version"),
        pytest.param({"image": "vllm:x", "version": "0.32.0"}, "vllm:x", "0.32.0", False, id="unless the user does"),
    ],
)
def test_image_and_version(engine: dict[str, str], image: str, version: str | None, controllable: bool) -> None:
    found = container({"spec.engine": engine})
    assert (found.image, found.config.version, found.controllable) == (image, version, controllable)


@pytest.mark.parametrize(
    ("changes", "values", "capture_size", "initial"),
    [
        pytest.param({}, (0, 1, 2, 3, 5), 528, "1-256:3", id="adaptive"),
        pytest.param({"spec.speculation.tuning": {"mode": "Off"}}, (0,), 512, "1-256:0", id="off"),
        pytest.param({"spec.engine": {"maxNumSeqs": 8}}, (0, 1, 2, 3, 5), 96, "1-8:3", id="a small engine"),
    ],
)
def test_what_control_is_told(
    changes: dict[str, Any], values: tuple[int, ...], capture_size: int, initial: str
) -> None:
    found = container(changes)
    assert (found.values, found.capture_size, str(found.initial_schedule)) == (values, capture_size, initial)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_admitted_without_a_warning(path: Path) -> None:
    resource = parse(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert admit(engine_settings.engine_config(resource, resolve(resource.spec))).warnings == ()


@pytest.mark.parametrize(
    ("resources", "warned"),
    [
        pytest.param({"memory": "4Gi"}, True, id="less memory than /dev/shm may take"),
        pytest.param({"memory": "64Gi"}, False, id="enough memory"),
        pytest.param({"memory": "64Gi", "sharedMemory": "70G"}, True, id="more shared memory, in another unit"),
        pytest.param({}, False, id="no limit"),
    ],
)
def test_shared_memory_counts_against_memory(resources: dict[str, str], warned: bool) -> None:
    warnings = admit(container({"spec.resources": resources}).config).warnings
    assert any("spec.resources.sharedMemory" in warning for warning in warnings) == warned


def test_variables_come_in_a_fixed_order_ours_first() -> None:
    found = container(
        {
            "spec.model.tokenSecret": {"name": "hub-token", "key": "token"},
            "spec.engine": {"env": [{"name": "PATH_TEMPLATE", "value": "/models/$(HOME)"}]},
        }
    )
    names = [variable["name"] for variable in found.env]
    assert names[0] == "VLLM_PLUGINS"
    assert names[-2:] == ["HF_TOKEN", "PATH_TEMPLATE"]
    assert found.env[-1]["value"] == "/models/$$(HOME)"
    assert len(set(names)) == len(names)
