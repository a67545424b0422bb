"""The control pass's lane: its writes stand in line, and nobody else's do."""

from __future__ import annotations

import asyncio

from outrider.reconcile.lane import Lane

from .fakes import FakeKube


def document(number: int) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ml", "name": f"m-{number}"}}


class Slow(FakeKube):
    """Counts the calls under way, and answers none of them before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way, self.most = 0, 0
        self.go_on = asyncio.Event()

    async def apply(self, manifest, *, manager="outrider", subresource=""):  # type: ignore[no-untyped-def]
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.go_on.wait()
        self.under_way -= 1
        return await super().apply(manifest, manager=manager, subresource=subresource)


async def test_so_many_writes_are_under_way_and_all_are_done() -> None:
    kube = Slow()
    lane = Lane(kube, width=3)
    writing = [asyncio.create_task(lane.apply(document(number))) for number in range(10)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert kube.most == 3
    kube.go_on.set()
    await asyncio.gather(*writing)
    assert kube.most == 3
    assert len(kube.applied()) == 10


async def test_reads_pass_by_a_full_lane() -> None:
    kube = Slow()
    lane = Lane(kube, width=1)
    writing = [asyncio.create_task(lane.apply(document(number))) for number in range(2)]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        assert await lane.get("v1", "ConfigMap", "ml", "m-7") is None
    kube.go_on.set()
    await asyncio.gather(*writing)


async def test_a_write_that_fails_leaves_the_lane_free() -> None:
    kube = FakeKube()
    lane = Lane(kube, width=1)
    kube.fail(lambda: RuntimeError("no"), times=1)
    for number in range(2):
        try:
            await lane.create(document(number))
        except RuntimeError:
            continue
    assert [write.target for write in kube.writes] == ["ConfigMap/m-1"]
