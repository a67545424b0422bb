"""Events: decisions, engines that are replaced, drafts that fail, and a service that is not ready any more. One that
cannot be posted is logged and forgotten: nothing may fail for want of its announcement."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from outrider.api.conditions import Condition
from outrider.core.decision import Change
from outrider.core.schedule import parse_text
from outrider.errors import KubeError
from outrider.manifests.event import event
from outrider.manifests.meta import ENGINE_CONTAINER, OWN_LABELS
from outrider.reconcile import rollout
from outrider.reconcile.neighbours import Manifest, Neighbours
from outrider.reconcile.registry import Service

logger = logging.getLogger(__name__)

WARN_EVERY_S = 300.0
"""Between two warnings of one reason: the longest back-off of a crash loop."""
_STARTING = ("NoPods", "Starting")
_UNHEALTHY = ("AcceptanceDeclining", "AcceptanceCollapsed")


def rfc3339(time_s: float) -> str:
    """Unix time as the API server writes it, to the second."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def post(service: Service, change: Change, neighbours: Neighbours) -> None:
    """Announce a change."""
    reason = "ScheduleRolledBack" if change.reason.startswith("rolled back") else f"{change.kind}Changed"
    message = f"{_moved(change, first=_first(service, change))}; {change.reason}"
    await announce(service, reason, message, neighbours, warning=reason == "ScheduleRolledBack")


def _moved(change: Change, *, first: bool) -> str:
    """From what to what; the first time that K is spoken of it is explained."""
    if change.kind == "Target":
        return f"{change.before} → {change.after} requests in flight a replica"
    before, after = parse_text(change.before).in_words, parse_text(change.after).in_words
    return f"{before} → {after}" + (" (K = speculative tokens a step)" if first else "")


def _first(service: Service, change: Change) -> bool:
    """Whether no other change of the schedule is remembered."""
    history = service.state.history if service.state else ()
    return all(one == change or one.kind != "Schedule" for one in history)


async def not_ready(service: Service, before: Condition | None, now: Condition, neighbours: Neighbours) -> None:
    """Warn that a service turned not ready, or is so for another reason than before.

    An engine that starts is no news, unless it was ready before, and not even then where services sleep: the last
    engine is gone a moment before KEDA says so. A reason that comes and goes, as that of a crash loop does, is told
    again after a while only.
    """
    sleeps = service.resolved is not None and service.resolved.idle_after_s is not None
    starts = now.reason in _STARTING and (before is None or before.status != "True" or sleeps)
    if now.status == "False" and not starts:
        await _warn_once(service, before, now, f"not ready: {now.message}", neighbours)


async def unhealthy_speculation(
    service: Service, before: Condition | None, now: Condition, neighbours: Neighbours
) -> None:
    """Warn when acceptance begins to decline, or drafts are all rejected."""
    if now.reason in _UNHEALTHY:
        await _warn_once(service, before, now, now.message, neighbours)


async def stuck(service: Service, before: Condition | None, now: Condition, neighbours: Neighbours) -> None:
    """Warn when an update cannot go on, the cluster has no place for one more engine, or somebody
    else writes the number of replicas."""
    await _warn_once(service, before, now, now.message, neighbours)


async def _warn_once(
    service: Service, before: Condition | None, now: Condition, message: str, neighbours: Neighbours
) -> None:
    told = before is not None and (before.status, before.reason) == (now.status, now.reason)
    now_s = neighbours.clock()
    recent = now_s < service.warned_s.get(now.reason, -WARN_EVERY_S) + WARN_EVERY_S
    if told or recent:
        return
    service.warned_s[now.reason] = now_s
    await announce(service, now.reason, message, neighbours, warning=True)


async def rolls(service: Service, before: Mapping[str, Any], after: Mapping[str, Any], neighbours: Neighbours) -> None:
    """Tell that a Deployment got another pod template, if it did, and what is other about it."""
    fields = template_changes(before["spec"]["template"], after["spec"]["template"])
    if fields:
        message = f"the engines are replaced {_pace(after['spec'])}, for a change of {', '.join(fields)}"
        message += rollout.downtime(after)
        await announce(service, "EnginesRolling", message, neighbours)


def _pace(deployment: Manifest) -> str:
    """How a rollout goes, in the Deployment's own numbers; one that does not say is ours of old."""
    strategy = deployment.get("strategy", {})
    if strategy.get("type") == "Recreate":
        return "all at once"
    bounds = strategy.get("rollingUpdate", {})
    at_a_time = max(1, bounds.get("maxSurge", 0) + bounds.get("maxUnavailable", 1))
    return "one at a time" if at_a_time == 1 else f"up to {at_a_time} at a time"


def template_changes(before: Manifest, after: Manifest) -> list[str]:
    """What differs between two pod templates, in a word each: flags and variables of the engine, fields of its
    container and of the pod, other containers, labels and annotations of a user's own."""
    old, new = before.get("spec", {}), after.get("spec", {})
    old_engine, new_engine = _engine(old), _engine(new)
    flags = (_flags(one.get("args", [])) for one in (old_engine, new_engine))
    variables = ({one["name"]: one for one in engine.get("env", [])} for engine in (old_engine, new_engine))
    return [
        *_differing(*flags),
        *_differing(*variables),
        *(name for name in _differing(old_engine, new_engine) if name not in ("args", "env")),
        *(name for name in _differing(old, new) if name != "containers"),
        *(f"container {name}" for name in _differing(_others(old), _others(new))),
        *_differing(_metadata(before), _metadata(after)),
    ]


def _others(spec: Manifest) -> Manifest:
    return {one["name"]: one for one in spec.get("containers", []) if one["name"] != ENGINE_CONTAINER}


def _metadata(template: Manifest) -> Manifest:
    """Without our own labels: the one that names the revision always differs."""
    metadata = template.get("metadata", {})
    labels = {name: value for name, value in metadata.get("labels", {}).items() if name not in OWN_LABELS}
    return {"labels": labels, "annotations": metadata.get("annotations") or {}}


def _engine(spec: Manifest) -> Manifest:
    found: Manifest = next((one for one in spec.get("containers", []) if one["name"] == ENGINE_CONTAINER), {})
    return found


def _flags(args: Sequence[str]) -> dict[str, list[str]]:
    """Arguments by the flag that they belong to."""
    found: dict[str, list[str]] = {}
    flag = ""
    for arg in args:
        flag, _, value = arg.partition("=") if arg.startswith("-") else (flag, "", arg)
        found.setdefault(flag, []).append(value)
    return found


def _differing(before: Manifest, after: Manifest) -> list[str]:
    names = sorted(before.keys() | after.keys())
    return [name or "arguments" for name in names if before.get(name) != after.get(name)]


async def announce(
    service: Service, reason: str, message: str, neighbours: Neighbours, *, warning: bool = False
) -> None:
    """Post an event about a service."""
    now_s = neighbours.clock()
    body = event(
        service.body["metadata"],
        reason,
        message,
        rfc3339(now_s),
        f"{int(now_s * 1e6):x}{reason.lower()}",
        warning=warning,
    )
    try:
        await neighbours.kube.create(body)
    except KubeError as error:
        logger.warning("event not posted: %s", error.message, extra={"reason": error.reason})
