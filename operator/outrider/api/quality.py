"""The evaluation that a candidate must pass before it takes requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from outrider.api.fields import Int
from outrider.api.raw import LargeRaw
from outrider.api.rules import Part
from outrider.api.surroundings import PodTemplateMetadata

MAX_TOLERANCE_PERCENT = 50
LONGEST_MINUTES = 24 * 60


class EvaluationTemplate(Part):
    """The pod of the evaluation's Job, as in a Job's template; the operator adds what ties it down."""

    metadata: PodTemplateMetadata = Field(default_factory=PodTemplateMetadata)
    """Labels and annotations of the pod, for example `{labels: {team: chat}}`; none of the user's when left out."""
    spec: LargeRaw
    """The pod's spec, up to 32 KiB, with one container, of any image, that asks OUTRIDER_CANDIDATE_URL and
    OUTRIDER_STABLE_URL for model OUTRIDER_MODEL and writes `{"score": 0.71, "baseline": 0.72}` to the file
    OUTRIDER_RESULT. Fields that the operator sets, and what breaks the restricted profile, are refused."""


class Quality(Part):
    """An evaluation of a candidate's answers, before it takes requests."""

    template: EvaluationTemplate
    """The pod that evaluates, as in the template of a Job: metadata and spec."""
    tolerance_percent: Annotated[Int, Field(ge=0, le=MAX_TOLERANCE_PERCENT)] | None = None
    """Loss of score against the baseline that is still as good, in percent of the baseline, 0 to 50, for example 2;
    when left out what the result gives as `tolerance`, a fraction, and else 2."""
    max_minutes: Annotated[Int, Field(ge=1, le=LONGEST_MINUTES)] | None = None
    """Longest evaluation, in minutes, 1 to 1440; 30 when left out. Without a result by then the candidate is
    withdrawn, and tried again later."""
