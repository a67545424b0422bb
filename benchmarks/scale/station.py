"""``python -m benchmarks.scale.station``: serves the pages, and each engine's admin port on an address of its own."""

from __future__ import annotations

import argparse
import asyncio
import time
from ipaddress import IPv4Network

from aiohttp import web

from benchmarks.scale.engines import PER_PAGE, Engine, page, service_name
from outrider.adapters.engine import ADMIN_PORT
from outrider_runtime.protocol import parse_json


def address(pod_range: str, number: int) -> str:
    """The address of a service's pod."""
    return str(IPv4Network(pod_range)[256 + number])


class Station:
    """All engines of one run."""

    def __init__(self, services: int, pod_range: str) -> None:
        started_s = time.time()
        self.engines = [Engine(*service_name(number), started_s, number) for number in range(services)]
        self.by_address = {address(pod_range, number): engine for number, engine in enumerate(self.engines)}
        self.moving = False

    async def scrape(self, request: web.Request) -> web.Response:
        """A page."""
        first = int(request.match_info["page"]) * PER_PAGE
        text = page(self.engines[first : first + PER_PAGE], time.time(), moving=self.moving)
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    async def move(self, request: web.Request) -> web.Response:
        """Let the load move, or not."""
        self.moving = request.match_info["what"] == "moving"
        return web.Response(text="")

    async def put(self, request: web.Request) -> web.Response:
        """A schedule for the engine of the address that was called; any key opens."""
        assert request.transport is not None
        called, _ = request.transport.get_extra_info("sockname")
        reply = self.by_address[called].keeper.put(parse_json(await request.read()), time.time())
        return web.json_response(reply.body, status=reply.status)


async def serve(services: int, pod_range: str, port: int) -> None:
    """Serve until the process is ended."""
    station = Station(services, pod_range)
    pages, admin = web.Application(), web.Application()
    pages.router.add_get("/page/{page}", station.scrape)
    pages.router.add_post("/load/{what}", station.move)
    admin.router.add_put("/schedule", station.put)
    runners = [web.AppRunner(one, access_log=None) for one in (pages, admin)]
    for runner in runners:
        await runner.setup()
    loop = asyncio.get_running_loop()
    assert runners[0].server is not None
    assert runners[1].server is not None
    await loop.create_server(runners[1].server, list(station.by_address), ADMIN_PORT)
    await loop.create_server(runners[0].server, "127.0.0.1", port)
    await asyncio.Event().wait()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.station", description=__doc__)
    parser.add_argument("services", type=int)
    parser.add_argument("pod_range")
    parser.add_argument("port", type=int)
    chosen = parser.parse_args()
    asyncio.run(serve(chosen.services, chosen.pod_range, chosen.port))


if __name__ == "__main__":
    main()
