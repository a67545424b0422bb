"""Pieces of PromQL: series of engines and of the operator, by service.

Engines bear the service's name as a label of their pods. The operator's series bear it as their own label; a scrape
that does not honour the labels of its target renames them, the namespace always, so that both spellings are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

SERVICE_LABEL = "serving_outrider_dev_service"
"""The pods' label, as Prometheus spells it."""
STABLE = {"serving_outrider_dev_track": "stable"}
"""Of replicas alone, for what is tuned and alerted on: a candidate on trial has an engine, draft or K of its own."""
NO_RENAMING = {"namespace": "exported_namespace", "service": "exported_service"}
"""The operator's labels, and what they are called beside labels of the same name that their target has."""


def engines(names: Sequence[str], matchers: str, suffix: str = "") -> str:
    """A selector of engines' series under any name that their version may use."""
    if len(names) == 1:
        return f"{names[0]}{suffix}{{{matchers}}}"
    either = "|".join(name + suffix for name in names)
    return f'{{__name__=~"{either}",{matchers}}}'


def of_service(names: Sequence[str], suffix: str = "", **more: str) -> str:
    """Series of the engines of the service that a dashboard shows."""
    return engines(names, _joined(f'namespace="$namespace",{SERVICE_LABEL}="$service"', more), suffix)


def of_fleet(names: Sequence[str], suffix: str = "", **more: str) -> str:
    """Series of the engines of all services in the namespaces that a dashboard shows."""
    return engines(names, _joined(f'namespace=~"$namespace",{SERVICE_LABEL}!=""', more), suffix)


def of_all(names: Sequence[str], suffix: str = "", **more: str) -> str:
    """Series of the replicas of all services there are; a candidate that misbehaves is withdrawn and alarms nobody."""
    return engines(names, _joined(f'{SERVICE_LABEL}!=""', STABLE | more), suffix)


def rate(selector: str, window: str = "$__rate_interval") -> str:
    """Increase a second."""
    return f"rate({selector}[{window}])"


def ratio(part: str, whole: str) -> str:
    """One over another, and nothing where there is none of the whole: a service without traffic, not NaN."""
    return f"{part} / ({whole} > 0)"


def known(quantile: str) -> str:
    """A quantile where anything was counted: without traffic it is NaN, which no comparison lets through."""
    return f"{quantile} >= 0"


def by_service(aggregation: str, vector: str, *further: str) -> str:
    """Aggregate engines' series, with labels ``namespace`` and ``service`` as the operator's series have them."""
    labels = ", ".join(("namespace", "service", *further))
    return f'{aggregation} by ({labels}) (label_replace({vector}, "service", "$1", "{SERVICE_LABEL}", "(.+)"))'


def own_everywhere(metric: str, matchers: str = "", *further: str, over: str = "") -> str:
    """The operator's series of all services by namespace and service; ``over`` is a function over time with its
    window, such as ``avg_over_time 5m``."""
    vector = metric + (f"{{{matchers}}}" if matchers else "")
    if over:
        function, window = over.split()
        vector = f"{function}({vector}[{window}])"
    for label, renamed in NO_RENAMING.items():
        vector = f'label_replace({vector}, "{label}", "$1", "{renamed}", "(.+)")'
    return f"max by ({', '.join(('namespace', 'service', *further))}) ({vector})"


def own_of_service(metric: str, *labels: str, function: str = "", **more: str) -> str:
    """The operator's series of the service that a dashboard shows, by further labels; ``function`` is applied over the
    rate interval, or over the window that it names, such as ``increase 1h``."""
    return _either(metric, '="$namespace"', '="$service"', labels, function, more)


def own_of_fleet(metric: str, *labels: str, **more: str) -> str:
    """The operator's series of the services in the namespaces that a dashboard shows, by service and further labels."""
    vector = _variants(metric, '=~"$namespace"', '!=""', "", more)
    named = [vector[0], f'label_replace({vector[1]}, "namespace", "$1", "exported_namespace", "(.+)")']
    return f"max by ({', '.join(('namespace', 'service', *labels))}) ({' or '.join(named)})"


def _either(
    metric: str, namespace: str, service: str, labels: Sequence[str], function: str, more: dict[str, str]
) -> str:
    grouping = f"max by ({', '.join(labels)})" if labels else "max"
    return f"{grouping} ({' or '.join(_variants(metric, namespace, service, function, more))})"


def _variants(metric: str, namespace: str, service: str, function: str, more: dict[str, str]) -> list[str]:
    found = []
    for matchers in (
        f'namespace{namespace},service{service},exported_namespace=""',
        f"exported_namespace{namespace},service{service}",
    ):
        vector = f"{metric}{{{_joined(matchers, more)}}}"
        name, _, window = function.partition(" ")
        found.append(f"{name}({vector}[{window or '$__rate_interval'}])" if function else vector)
    return found


def _joined(matchers: str, more: dict[str, str]) -> str:
    """With further matchers: ``label="value"``, or as a regular expression where the value begins with ``~``, and
    denied where it begins with ``!``."""
    parts = [matchers]
    for label, value in more.items():
        operator = {"~": "=~", "!": "!="}.get(value[:1], "=")
        parts.append(f'{label}{operator}"{value.lstrip("~!")}"')
    return ",".join(parts)
