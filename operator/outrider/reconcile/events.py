"""Events about decisions. One that cannot be posted is logged and forgotten: no decision may fail for want of its
announcement."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from outrider.core.decision import Change
from outrider.errors import KubeError
from outrider.manifests.event import event
from outrider.reconcile.neighbours import Neighbours
from outrider.reconcile.registry import Service

logger = logging.getLogger(__name__)


def rfc3339(time_s: float) -> str:
    """Unix time as the API server writes it, to the second."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def post(service: Service, change: Change, neighbours: Neighbours) -> None:
    """Announce a change."""
    reason = "ScheduleRolledBack" if change.reason.startswith("rolled back") else f"{change.kind}Changed"
    message = f"{change.before} → {change.after}: {change.reason}"
    await announce(service, reason, message, neighbours, warning=reason == "ScheduleRolledBack")


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
