"""The page of the operator's own metrics, from the metrics themselves."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from outrider import telemetry
from outrider.reference.markdown import table

INTRODUCTION = """\
# Metrics of the operator

What the operator exports beside what every Python process does. Series of a service go when it goes, and one that is
about a candidate when its trial is over. What is not known has no series, and is never reported as it last was. No
label has the name of a pod.

`namespace` and `service` are those of the resource; `track` is `stable` or `candidate`; `stage` and `outcome` are the
words of `status.revisions` ([resource](resource.md)); `type`, `status` and `reason` those of
[conditions](conditions.md). Who asks for them: [dashboards and alerts](../dashboards.md).
"""


def page() -> str:
    """The page as Markdown, the same text for the same metrics."""
    return f"{INTRODUCTION}\n{table(('metric', 'type', 'labels', 'what it tells'), map(_row, every()))}\n"


def every() -> list[Counter | Gauge | Histogram | telemetry.Findings]:
    """All metrics that the operator defines, in the order in which it does."""
    defined = vars(telemetry).values()
    held = (one.metric if isinstance(one, telemetry.Tallies) else one for one in defined)
    return [one for one in held if isinstance(one, Counter | Gauge | Histogram | telemetry.Findings)]


def _row(metric: Counter | Gauge | Histogram | telemetry.Findings) -> tuple[str, str, str, str]:
    (family,) = metric.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    # The library keeps the names of labels to itself, and a metric without a series has no other place for them.
    labels = ", ".join(f"`{label}`" for label in metric._labelnames)
    return f"`{name}`", family.type, labels, family.documentation
