"""A lane of the API server for those who can wait: so many writes under way, and the others stand in line before it.

A control pass may have a thousand services write at once. Without a lane of its own, each call of an objects pass would
stand behind all of these in the client's pool of connections, and a changed spec wait for a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from outrider.reconcile.neighbours import KubeApi, Manifest

WIDTH = 8
"""Writes under way: enough to keep an API server of a few cores busy, and few beside the hundred of the pool."""


class Lane:
    """`KubeApi` with its applies and creations in line; reads pass by."""

    def __init__(self, kube: KubeApi, width: int = WIDTH) -> None:
        self._kube, self._gate = kube, asyncio.Semaphore(width)
        self.get, self.list, self.delete, self.serves = kube.get, kube.list, kube.delete, kube.serves

    async def apply(self, manifest: Mapping[str, Any], **how: str) -> Manifest:
        """Server-side apply, in its turn."""
        async with self._gate:
            return await self._kube.apply(manifest, **how)

    async def create(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create an object, in its turn."""
        async with self._gate:
            return await self._kube.create(manifest)
