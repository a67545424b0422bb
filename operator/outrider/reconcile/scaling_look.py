"""Looks at what all services share of the way from load to replicas: two calls, whatever their number."""

from __future__ import annotations

import logging
from collections.abc import Callable

from outrider.errors import Forbidden, KubeError
from outrider.reconcile import scaling_path
from outrider.reconcile.neighbours import KubeApi, Manifest
from outrider.reconcile.registry import Registry, ServiceKey
from outrider.reconcile.scaling_path import UNKNOWN, ScalingPath

logger = logging.getLogger(__name__)

PERIODS = 2
"""Control periods between two looks."""


class ScalingLook:
    """Keeps the registry's `ScalingPath`; ``reconcile`` is told of every service when it changes.

    The objects are named one by one in our rights, so they are read and not watched.
    """

    def __init__(self, registry: Registry, kube: KubeApi, reconcile: Callable[[ServiceKey], None]) -> None:
        self._registry, self._kube, self._reconcile = registry, kube, reconcile

    async def run(self) -> None:
        """One look; an API server that does not answer proves nothing."""
        try:
            found = await self._look()
        except KubeError as error:
            logger.warning("KEDA was not looked at: %s", error.message, extra={"reason": error.reason})
            return
        before, self._registry.scaling_path = self._registry.scaling_path, found
        if found != before:
            for service in self._registry:
                self._reconcile(service.key)

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
