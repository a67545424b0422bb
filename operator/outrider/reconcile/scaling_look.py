"""Looks at what all services share of the way from load to replicas: three calls, whatever their number.

ScaledObjects are watched as well. But a definition that goes and comes back may be served a moment after Kopf last
looked which kinds there are, and then nobody watches them: the list tells what a watch would have told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from outrider.errors import Forbidden, KubeError
from outrider.reconcile import scaling_path
from outrider.reconcile.autoscaler import SCALED_OBJECT
from outrider.reconcile.manifest_state import precedes
from outrider.reconcile.neighbours import KubeApi, Manifest, list_in
from outrider.reconcile.registry import SERVICE_LABEL, Registry, ServiceKey
from outrider.reconcile.scaling_path import UNKNOWN, ScalingPath

logger = logging.getLogger(__name__)

PERIODS = 2
"""Control periods between two looks."""


class ScalingLook:
    """Keeps the registry's `ScalingPath`; ``reconcile`` is told of every service when it changes.

    The objects are named one by one in our rights, so they are read and not watched.
    """

    def __init__(
        self,
        registry: Registry,
        kube: KubeApi,
        reconcile: Callable[[ServiceKey], None],
        namespaces: tuple[str, ...] = (),
    ) -> None:
        self._registry, self._kube, self._reconcile = registry, kube, reconcile
        self._namespaces = namespaces

    async def run(self) -> None:
        """One look; an API server that does not answer proves nothing."""
        try:
            found = await self._look()
            listed: list[Manifest] = []
            if found.served:
                listed = await list_in(self._kube, self._namespaces, *SCALED_OBJECT, SERVICE_LABEL)
        except KubeError as error:
            logger.warning("KEDA was not looked at: %s", error.message, extra={"reason": error.reason})
            return
        before, self._registry.scaling_path = self._registry.scaling_path, found
        if found != before:
            for service in self._registry:
                self._reconcile(service.key)
        for body in listed:
            self._take(body)

    def _take(self, body: Manifest) -> None:
        """Tell the registry of what is newer than what it knows."""
        meta = body["metadata"]
        service = self._registry.get((meta["namespace"], meta["labels"][SERVICE_LABEL]))
        known = None if service is None else service.children.get(f"ScaledObject/{meta['name']}")
        if known is not None and precedes(known, body):
            key, looks = self._registry.child_event("MODIFIED", body)
            if looks:
                self._reconcile(key)

    async def _look(self) -> ScalingPath:
        try:
            definition = await self._get(scaling_path.CRD)
            api_service = await self._get(scaling_path.API_SERVICE)
        except Forbidden as error:
            logger.debug("KEDA is not looked at: %s", error.message)
            return UNKNOWN  # rights of single namespaces alone, say
        if not scaling_path.can_serve(definition):
            return ScalingPath(served=False)
        return ScalingPath(True, scaling_path.too_old(definition), scaling_path.adapter(api_service))

    async def _get(self, which: tuple[str, str, str]) -> Manifest | None:
        api_version, kind, name = which
        return await self._kube.get(api_version, kind, None, name)
