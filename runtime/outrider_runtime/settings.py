"""What the plugin is told by its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

INITIAL_SCHEDULE = "OUTRIDER_INITIAL_SCHEDULE"
"""Rows that the engine serves with until it is told otherwise; its start table names every K."""
PORT = "OUTRIDER_ADMIN_PORT"
KEY_FILE = "OUTRIDER_ADMIN_KEY_FILE"
SCHEDULE_FILE = "OUTRIDER_SCHEDULE_FILE"
MAX_WAITING = "OUTRIDER_MAX_WAITING"
NO_PROGRESS = "OUTRIDER_NO_PROGRESS_SECONDS"
WARM_UP = "OUTRIDER_WARM_UP_SECONDS"
HEARTBEAT = "OUTRIDER_HEARTBEAT_SECONDS"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the front door; the defaults are those of a pod that the operator made."""

    port: int = 8001
    key_file: str = ""
    """One admin key a line; without it nobody may change or read the schedule."""
    schedule_file: str = ""
    """A document as for ``PUT /schedule``, read at start and when it changes."""
    max_waiting: int = 0
    """Requests that may wait before new ones are refused; 0 means any number."""
    no_progress_s: float = 10.0
    """Without a sign of life for so long while requests run, the engine counts as stuck. The longest healthy step is a
    prefill of a few seconds."""
    warm_up_s: float = 60.0
    """Longest warm-up; 0 leaves it out."""
    heartbeat_s: float = 0.0
    """Idle time after which one token is generated, so that the next request finds warm kernels; 0 means never."""


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the environment.

    Raises:
        ValueError: a value is no number, or out of range; the text names the variable.
    """
    base = Settings()
    return Settings(
        port=int(_number(environment, PORT, base.port, least=1, most=65535)),
        key_file=environment.get(KEY_FILE, ""),
        schedule_file=environment.get(SCHEDULE_FILE, ""),
        max_waiting=int(_number(environment, MAX_WAITING, base.max_waiting)),
        no_progress_s=_number(environment, NO_PROGRESS, base.no_progress_s, least=0.1),
        warm_up_s=_number(environment, WARM_UP, base.warm_up_s),
        heartbeat_s=_number(environment, HEARTBEAT, base.heartbeat_s),
    )


def _number(environment: Mapping[str, str], name: str, default: float, least: float = 0.0, most: float = 1e9) -> float:
    text = environment.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise ValueError(f"{name} is {text!r}; it must be a number from {least:g} to {most:g}")
    return value
