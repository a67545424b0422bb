"""What a test sees of an engine: two ports over HTTP and mounted files, the same for a simulated and a real one."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

HTTP_PORT, ADMIN_PORT = 8000, 8001
MODEL = "tiny"
KEY_FILE, SCHEDULE_FILE = "key", "schedule.json"
CALL_TIMEOUT_S = 60.0
_POLL_S = 0.02
_BEHIND_S = 0.25  # longer than any step here: a real engine's page misses the outputs on their way


@dataclass(frozen=True, slots=True)
class Answer:
    """Of an HTTP call; the body is decoded where it is JSON."""

    status: int
    body: Any
    headers: Mapping[str, str]


@dataclass(slots=True)
class Generation:
    """Of a completion: the tokens as they came, a part being one event of the stream (or the whole answer)."""

    status: int
    parts: list[list[int]] = field(default_factory=list)
    finish_reason: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def token_ids(self) -> list[int]:
        """The whole answer."""
        return [token for part in self.parts for token in part]


class MountedFolder:
    """A folder as a kubelet mounts a ConfigMap or Secret: every file a link, and all of them swapped at once."""

    def __init__(self, path: Path, files: Mapping[str, str]) -> None:
        self.path = path
        self._version = 0
        path.mkdir(parents=True)
        self.write(files)
        for name in files:
            (path / name).symlink_to(Path("..data") / name)

    def write(self, files: Mapping[str, str]) -> None:
        """Give the files new contents; readers see all of the old or all of the new."""
        before = self.path / f"..{self._version}"
        self._version += 1
        now = self.path / f"..{self._version}"
        now.mkdir()
        for name, text in files.items():
            (now / name).write_text(text)
        link = self.path / "..data_tmp"
        link.symlink_to(now.name)
        link.rename(self.path / "..data")
        shutil.rmtree(before, ignore_errors=True)


@dataclass(slots=True)
class EngineUnderTest:
    """An engine that serves. Every call opens a connection of its own, so threads may share one object."""

    kind: str
    """``simulated`` or ``real``."""
    address: str
    admin_key: str
    mounted_key: MountedFolder
    mounted_schedule: MountedFolder
    alive: Callable[[], bool]
    sees_files_within_s: float
    """How long it may take to look at its mounted files again."""
    state_at_start: Mapping[str, Any] = field(default_factory=dict)
    """What ``GET /schedule`` said before any test."""
    process_id: int | None = None
    """Of the API server of a real engine."""

    # The admin port.

    def put(self, document: object, key: str | None = None) -> Answer:
        """``PUT /schedule``; a text or bytes go out as they are."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self.call("PUT", "/schedule", body=body, headers=self._with(key))

    def get(self, key: str | None = None) -> Answer:
        """``GET /schedule``."""
        return self.call("GET", "/schedule", headers=self._with(key))

    def ready(self) -> Answer:
        """``GET /ready``, without a key, as the kubelet asks."""
        return self.call("GET", "/ready")

    def next_generation(self) -> int:
        """One above what the engine has."""
        return int(self.get().body["generation"]) + 1

    def set_schedule(self, rows: Sequence[Sequence[int]], lease_s: float = 3600) -> dict[str, Any]:
        """Deliver a schedule as a newer generation; returns the effective table, and fails unless it is taken over."""
        answer = self.put({"generation": self.next_generation(), "schedule": rows, "leaseSeconds": lease_s})
        assert answer.status == 200, answer.body
        body: dict[str, Any] = answer.body
        return body

    def call(
        self,
        method: str,
        path: str,
        *,
        port: int = ADMIN_PORT,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Any call."""
        connection = http.client.HTTPConnection(self.address, port, timeout=CALL_TIMEOUT_S)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            response = connection.getresponse()
            text = response.read().decode()
            return Answer(response.status, _decoded(text), {k.lower(): v for k, v in response.getheaders()})
        finally:
            connection.close()

    def _with(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.admin_key if key is None else key}", "Content-Type": "application/json"}

    # vLLM's port.

    def generate(
        self,
        prompt_token_ids: Sequence[int],
        max_tokens: int,
        *,
        stream: bool = False,
        stop_after_parts: int | None = None,
    ) -> Generation:
        """A greedy completion of exactly ``max_tokens``; hangs up after so many parts of a stream if told to."""
        asked = {
            "model": MODEL,
            "prompt": list(prompt_token_ids),
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "stream": stream,
        }
        connection = http.client.HTTPConnection(self.address, HTTP_PORT, timeout=CALL_TIMEOUT_S)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", body=json.dumps(asked).encode(), headers=headers)
            response = connection.getresponse()
            generation = Generation(response.status, headers={k.lower(): v for k, v in response.getheaders()})
            if response.status != 200:
                response.read()
                return generation
            for choice in _choices(response, stream=stream):
                if tokens := _tokens(choice):
                    generation.parts.append(tokens)
                generation.finish_reason = choice.get("finish_reason") or generation.finish_reason
                if len(generation.parts) == stop_after_parts:
                    break
            return generation
        finally:
            connection.close()

    def families(self) -> dict[str, Metric]:
        """The metrics page by family, as Prometheus' own parser reads it."""
        answer = self.call("GET", "/metrics", port=HTTP_PORT)
        return {family.name: family for family in text_string_to_metric_families(answer.body)}

    def metrics(self) -> Readings:
        """The metrics page as numbers."""
        samples = [sample for family in self.families().values() for sample in family.samples]
        return Readings({(one.name, frozenset(one.labels.items())): one.value for one in samples})

    def settled(self) -> Readings:
        """The metrics once nothing is in flight: the page is some outputs behind the engine."""
        before: Readings | None = None
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while time.monotonic() < deadline:
            now = self.metrics()
            busy = now.sum("vllm:num_requests_running") + now.sum("vllm:num_requests_waiting")
            if not busy and before is not None and now.counters() == before.counters():
                return now
            before = now
            time.sleep(_POLL_S if self.kind == "simulated" else _BEHIND_S)
        raise TimeoutError(f"requests are still in flight on the {self.kind} engine")


@dataclass(frozen=True, slots=True)
class Readings:
    """Samples of one scrape, or what they grew by between two."""

    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def sum(self, name: str, **labels: str) -> float:
        """All samples of this name that have these labels, added up; 0 if there is none."""
        return sum(value for found, value in self._of(name) if labels.items() <= found.items())

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """The same, by the value of one more label; only what is not 0."""
        sums: dict[str, float] = {}
        for found, value in self._of(name):
            if value and labels.items() <= found.items():
                sums[found[label]] = sums.get(found[label], 0.0) + value
        return sums

    def counters(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Those that requests and steps move, no clocks among them."""
        moving = ("vllm:spec_decode_", "vllm:generation_tokens_", "vllm:request_success_", "outrider_engine_steps_")
        return {key: value for key, value in self.values.items() if key[0].startswith(moving)}

    def since(self, before: Readings) -> Readings:
        """What was added after ``before``."""
        return Readings({key: value - before.values.get(key, 0.0) for key, value in self.values.items()})

    def _of(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        for (found, labels), value in self.values.items():
            if found == name:
                yield dict(labels), value


def wait_until(condition: Callable[[], bool], within_s: float, what: str) -> float:
    """Look again and again; returns the seconds it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, f"{what}: not within {within_s:g} s"
        time.sleep(_POLL_S)
    return time.monotonic() - began


def _choices(response: http.client.HTTPResponse, *, stream: bool) -> Iterator[Mapping[str, Any]]:
    if not stream:
        yield from json.loads(response.read())["choices"]
        return
    while line := response.readline():
        data = line.decode().strip().removeprefix("data: ")
        if data and data != "[DONE]":
            yield from json.loads(data)["choices"]


def _tokens(choice: Mapping[str, Any]) -> list[int]:
    """vLLM sends the ids when asked to; the simulated engine has none and writes one word a token, ``w<number>``."""
    if choice.get("token_ids") is not None:
        return list(choice["token_ids"])
    return [int(word.removeprefix("w")) for word in choice["text"].split()]


def _decoded(text: str) -> Any:
    return json.loads(text) if text.startswith(("{", "[")) else text
