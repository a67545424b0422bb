"""What the environment may say, and that mistakes name their variable."""

from __future__ import annotations

import pytest

from outrider_runtime.settings import (
    HEARTBEAT,
    KEY_FILE,
    MAX_WAITING,
    NO_PROGRESS,
    PORT,
    SCHEDULE_FILE,
    WARM_UP,
    Settings,
    read,
)


@pytest.mark.parametrize("value", [None, ""], ids=["unset", "empty"])
def test_without_a_word_the_defaults_hold(value: str | None) -> None:
    names = (PORT, KEY_FILE, SCHEDULE_FILE, MAX_WAITING, NO_PROGRESS, WARM_UP, HEARTBEAT)
    assert read({} if value is None else dict.fromkeys(names, value)) == Settings(
        port=8001,
        key_file="",
        schedule_file="",
        max_waiting=0,
        no_progress_s=10.0,
        warm_up_s=60.0,
        heartbeat_s=0.0,
    )


def test_each_variable_has_its_setting() -> None:
    environment = {
        PORT: "9001",
        KEY_FILE: "/keys/admin",
        SCHEDULE_FILE: "/schedule/document.json",
        MAX_WAITING: "64",
        NO_PROGRESS: "2.5",
        WARM_UP: "0",
        HEARTBEAT: "30",
    }
    assert read(environment) == Settings(9001, "/keys/admin", "/schedule/document.json", 64, 2.5, 0.0, 30.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(PORT, "tcp://10.0.0.7:8001", id="a port as Kubernetes writes it for a Service"),
        pytest.param(PORT, "0", id="port 0"),
        pytest.param(PORT, "65536", id="a port of more than 16 bits"),
        pytest.param(MAX_WAITING, "many", id="a queue in words"),
        pytest.param(MAX_WAITING, "-1", id="a negative queue"),
        pytest.param(NO_PROGRESS, "0", id="no patience at all"),
        pytest.param(NO_PROGRESS, "inf", id="patience without end"),
        pytest.param(WARM_UP, "60s", id="a unit"),
        pytest.param(HEARTBEAT, "nan", id="no number"),
    ],
)
def test_a_bad_number_names_its_variable_and_the_range(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} is '{value}'; it must be a number from "):
        read({name: value})
