"""Metrics pages that a test writes, served over HTTP for the cluster's Prometheus to scrape."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class Pages:
    """One page a path; use it as a context manager. A page that is empty, or a path that is not known, is a target that
    does not answer."""

    def __init__(self) -> None:
        self.texts: dict[str, Callable[[], str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = pages.texts.get(self.path, str)()
                body = (text.strip() + "\n").encode()
                self.send_response(200 if text else 503)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # a scrape whose time was over
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: the tests look at what Prometheus makes of it."""

        return Handler
