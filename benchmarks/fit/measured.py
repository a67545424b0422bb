"""Errors of the step-time model held out on the measured H100 profile."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np

from outrider.core import measured_profile
from outrider.core.held_out import HeldOut, held_out
from outrider.core.step_time import GENERIC

PROFILE = "h100-llama8b-eagle"
TRAINED_TO, ASKED_FROM = 96.0, 128.0
"""Batch sizes of the question about load; asked up to the largest measured, 256."""


def errors() -> HeldOut:
    """Rows with the drafter, from the generic prior; noisy rows by their throughput."""
    document = json.loads((files("outrider.simulator") / "data" / f"{PROFILE}.json").read_text())
    profile = measured_profile.read(document)
    drafter = profile.points.passes > 0
    points, times_s = profile.points.where(drafter), profile.times_s[drafter]
    prior = GENERIC.for_engine(profile.capture_size, None)
    return held_out(points, times_s, np.ones_like(times_s), prior, limit=TRAINED_TO, above=ASKED_FROM)
