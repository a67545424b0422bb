"""The way to Prometheus with faults put in: what the operator and KEDA see of a store that lost its targets, or is
gone."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

EMPTY = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}}).encode()


class Store:
    """Hands requests on to Prometheus; use it as a context manager."""

    def __init__(self, prometheus_url: str, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.empty = False
        """Answer every query as if nothing had ever been scraped."""
        self.cuts_after_s: float | None = None
        """Take requests, and cut the connection after so long, without an answer."""
        self._behind, self._port = prometheus_url, port
        self._server: ThreadingHTTPServer | None = None

    @property
    def listens(self) -> bool:
        """Whether connections are taken."""
        return self._server is not None

    def open(self) -> None:
        """Listen, such as after `close`."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Refuse connections from now on."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def log_message(self, format: str, *args: object) -> None:
                pass

            def _answer(self, body: bytes | None) -> None:
                if store.cuts_after_s is not None:
                    time.sleep(store.cuts_after_s)
                    return
                status, text = (200, EMPTY) if store.empty else store.ask(self.path, body, self.headers["Content-Type"])
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # KEDA hangs up when its object goes
                    self.wfile.write(text)

        return Handler

    def ask(self, path: str, body: bytes | None, content_type: str | None) -> tuple[int, bytes]:
        """Prometheus' own answer."""
        headers = {} if content_type is None else {"Content-Type": content_type}
        request = urllib.request.Request(self._behind + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 502, b"{}"
