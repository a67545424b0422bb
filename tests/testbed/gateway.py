"""A stand-in for the gateway in front of services: it exports how many requests it holds for each, as the test says."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from tests.testbed.cluster import Cluster


class Gateway:
    """Scraped by the cluster's Prometheus as job ``gateway``; use it as a context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self.requests: dict[str, int] = {}
        """By service, exported as ``gateway_requests{service="…"}``."""
        self._address = ("127.0.0.1", cluster.port("gateway"))
        self._server = ThreadingHTTPServer(self._address, self._handler())
        cluster.add_scrape_target("gateway", f"127.0.0.1:{self._address[1]}")

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                lines = [f'gateway_requests{{service="{name}"}} {count}\n' for name, count in gateway.requests.items()]
                self.wfile.write("".join(["# TYPE gateway_requests gauge\n", *lines]).encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
