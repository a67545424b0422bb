"""The GPUs that a namespace has: its ResourceQuotas, read for all services at once.

A quota counts pods of all kinds. What pods other than engines hold is left out of what engines share.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from outrider.api.fields import quantity_value
from outrider.errors import Forbidden, KubeError
from outrider.reconcile.neighbours import KubeApi, list_in
from outrider.reconcile.registry import Registry
from outrider.reconcile.share import BudgetKey, Quota

logger = logging.getLogger(__name__)

PERIODS = 2
"""Control periods between two looks."""
LOOKS = 3
"""The least that others held in so many looks counts: a quota's own count of what is used comes late after a pod's
end, and its GPUs would count as somebody else's meanwhile. Before so many looks none count: an operator that has just
started does not know all pods, and engines would give way to themselves."""
REQUESTS = "requests."
EVERY_ENGINE = {"NotTerminating"}
"""Scopes that all engine pods are in: they have no deadline. Quotas of other scopes count some pods, and are left to
the API server."""


class QuotaLook:
    """Keeps the registry's quotas; a look is one list, whatever the number of services."""

    def __init__(self, registry: Registry, kube: KubeApi, namespaces: tuple[str, ...]) -> None:
        self._registry, self._kube, self._namespaces = registry, kube, namespaces
        self._others: dict[tuple[str, str, str], tuple[int, ...]] = {}

    async def run(self) -> None:
        """One look; an API server that does not answer proves nothing."""
        try:
            quotas = await list_in(self._kube, self._namespaces, "v1", "ResourceQuota")
        except Forbidden as error:
            logger.debug("GPU quotas are not looked at: %s", error.message)
            self._registry.quotas = {}  # without the right they are enforced all the same, and not shared out
            return
        except KubeError as error:
            logger.warning("GPU quotas were not looked at: %s", error.message, extra={"reason": error.reason})
            return
        self._registry.quotas = self._read(quotas)

    def _read(self, quotas: Iterable[Mapping[str, Any]]) -> dict[BudgetKey, Quota]:
        held, found, others = self._held(), dict[BudgetKey, Quota](), self._others
        self._others = {}
        for quota in quotas:
            meta, spec, used = quota["metadata"], quota.get("spec", {}), quota.get("status", {}).get("used", {})
            if "scopeSelector" in spec or not EVERY_ENGINE.issuperset(spec.get("scopes") or ()):
                continue
            for name, amount in (spec.get("hard") or {}).items():
                resource = name.removeprefix(REQUESTS)
                key = (meta["namespace"], resource)
                if resource == name or "/" not in resource:
                    continue
                one = (*key, meta["name"])
                engines = held.get(key, 0)
                now = max(0, _whole(used.get(name, "0")) - engines)
                self._others[one] = (*others.get(one, (0,) * (LOOKS - 1)), now)[-LOOKS:]
                seen = Quota(meta["name"], _whole(amount), min(self._others[one]))
                if key not in found or seen.gpus < found[key].gpus:
                    found[key] = seen
        return found

    def _held(self) -> dict[BudgetKey, int]:
        """GPUs of the replicas that are known, those that are on their way out too."""
        held: dict[BudgetKey, int] = {}
        for service in self._registry:
            for pod in service.stable_pods:
                for resource, number in () if pod.failed else pod.devices:
                    key = (service.key[0], resource)
                    held[key] = held.get(key, 0) + number
        return held


def _whole(quantity: object) -> int:
    try:
        return int(quantity_value(str(quantity)))
    except ValueError:
        return 0  # in a unit that no number of devices has
