"""A session for synchronous HTTP whose answers are bounded in time and size, whoever gives them.

The time-out of requests is one between two bytes: an answer that trickles would keep its thread for ever, and with it
the end of the process. Here it is that of the whole answer, from its first header on. Size counts twice: as it arrives,
and unpacked, since a few KiB may unpack to GiB.
"""

from __future__ import annotations

import io
import time
from http.client import HTTPResponse
from pathlib import Path
from socket import socket
from typing import Any

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

LEAST, MOST = 32 * 2**20, 512 * 2**20
"""Bytes. The longest query is that of latencies, some 40 KiB an engine: 800 engines fit into the one, 13,000 into the
other."""
SHARE = 16
"""While an answer is parsed it takes about five times its length, beside what was read before it."""
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
PIECE = 64 * 1024


class TooLong(OSError):
    """An answer of more bytes than anybody needs."""


def max_answer(memory_limit: Path = MEMORY_LIMIT) -> int:
    """Bytes that one answer may have: a sixteenth of what the container may use, within `LEAST` and `MOST`."""
    try:
        limit = int(memory_limit.read_text())
    except (OSError, ValueError):  # no container, or one without a limit
        return MOST
    return min(MOST, max(LEAST, limit // SHARE))


class BoundedSession(requests.Session):
    """A session that reads every answer whole, in at most its time-out and so many bytes.

    Raises (beside what requests raises):
        TooLong: there were more.
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self._most = max_answer() if most is None else most

    def get_adapter(self, url: str) -> BaseAdapter:
        """The adapter for an address; one that somebody mounted since is changed on its first use."""
        adapter = super().get_adapter(url)
        if isinstance(adapter, HTTPAdapter):
            adapter.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
        return adapter

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request and read the answer."""
        response = super().send(request, **{**kwargs, "stream": True})
        content = bytearray()
        try:
            for piece in response.iter_content(PIECE):
                content += piece
                if len(content) > self._most:
                    raise TooLong(f"more than {self._most} bytes")
        except BaseException:
            response.close()
            raise
        response._content = bytes(content)
        return response


class _Timed(io.RawIOBase):
    """What arrives at a socket until a moment; each read waits for what is left of the time and no longer."""

    def __init__(self, raw: Any, sock: socket) -> None:
        self._raw, self._sock = raw, sock
        timeout_s = sock.gettimeout()
        self._until_s = None if timeout_s is None else time.monotonic() + timeout_s

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there, or wait for it."""
        if self._until_s is not None:
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the answer took too long")
            self._sock.settimeout(left_s)
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        """Give the socket back."""
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock))


class _Connection(HTTPConnection):
    response_class = _Response


class _TLSConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection
