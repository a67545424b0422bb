"""Prove the runtime plugin on a GPU: safe configuration, live change under load, random changes, cost of measuring.

Each command talks to one engine at 127.0.0.1, adds its rows to ``results.jsonl`` as it goes, and can be run again.
Python 3.11, aiohttp, and vLLM 0.33.0 with this project on PYTHONPATH; nothing is downloaded: weights are dummies of
Llama-3.1-8B's shape with a one-layer EAGLE drafter, and acceptance is set (0.75 by position).

    proof.py start NAME [vllm arguments]    start an engine in a session of its own and wait for /ready
    proof.py open RATES POLICIES SECONDS    open-loop load at each rate under each policy, set live
    proof.py puts COUNT                     round trips of PUT /schedule under load
    proof.py effect BATCH COUNT             steps that a client still sees with drafts after the answer to K 0
    proof.py random SECONDS RATE            random schedules every 50 to 200 ms under load
    proof.py overhead BATCH ROUNDS          measuring on, off, off, on; step times by the clock of a streaming client
    proof.py stop                           end the engine

PROOF_STATIC=K starts vLLM's own server with that K, no table and no plugin; load it with the policy ``static``.
PROOF_METHOD names another method for the drafter than ``eagle``.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

HERE = Path(os.environ.get("PROOF", "proof"))
RESULTS = HERE / "results.jsonl"
HOST = os.environ.get("PROOF_HOST", "127.0.0.1")
HTTP, ADMIN = f"http://{HOST}:8000", f"http://{HOST}:8001"
KEY = "proof"
HEADERS = {"Authorization": f"Bearer {KEY}"}
START_S = 420.0
DRAIN_S = 40.0
"""An engine in health needs a few seconds for what is in flight when the load ends."""
SEGMENT_S = 3.0
STUDENT = 2.15
"""Student's t for 95 % and 15 rounds; for 13 it is 2.18, which moves the ends by less than 0.01 points."""
ACCEPTANCE = 0.75
TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "bos_token_id": 128000,
    "eos_token_id": 128001, "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 16384,
    "mlp_bias": False, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "torch_dtype": "bfloat16", "vocab_size": 128256,
    "tie_word_embeddings": False, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 32,
}  # fmt: skip
"""Llama-3.1-8B's shape."""
TABLE = [[1, 12, 5], [13, 110, 3], [111, 150, 2], [151, 256, 1]]
FINE_BUCKETS = [round(0.002 * 1.15**n, 5) for n in range(50)]

rng = random.Random(7)


def save(kind: str, **row: Any) -> None:
    """Add a row, and show it."""
    row = {"kind": kind, "engine": _name(), "at": round(time.time(), 1), **row}
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print({key: value for key, value in row.items() if not isinstance(value, list) or len(value) < 20}, flush=True)


def start(name: str, extra: list[str]) -> None:
    """Start an engine and wait until it is ready."""
    HERE.mkdir(exist_ok=True)
    for folder, layers in (("target", 32), ("drafter", 1)):
        (HERE / folder).mkdir(exist_ok=True)
        (HERE / folder / "config.json").write_text(json.dumps(TARGET | {"num_hidden_layers": layers}))
    (HERE / "key").write_text(KEY)
    ceiling = int(os.environ.get("PROOF_STATIC") or os.environ.get("PROOF_CEILING", "5"))
    spec: dict[str, Any] = {
        "method": os.environ.get("PROOF_METHOD", "eagle"), "model": str(HERE / "drafter"),
        "num_speculative_tokens": ceiling,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": [ACCEPTANCE ** (position + 1) for position in range(ceiling)],
    }  # fmt: skip
    table, static = os.environ.get("PROOF_TABLE"), os.environ.get("PROOF_STATIC")
    if table:
        spec["num_speculative_tokens_per_batch_size"] = json.loads(table)
    arguments = [
        "--model", str(HERE / "target"), "--served-model-name", "m", "--load-format", "dummy", "--skip-tokenizer-init",
        "--max-model-len", "8192", "--max-num-seqs", "256", "--max-num-batched-tokens", "8192",
        "--gpu-memory-utilization", "0.88", "--no-enable-prefix-caching", "--host", "127.0.0.1",
        "--custom-histogram-buckets", json.dumps({"inter_token_latency": FINE_BUCKETS}),
        "--speculative-config", json.dumps(spec), *extra,
    ]  # fmt: skip
    module = "vllm.entrypoints.openai.api_server" if static else "outrider_runtime.serve"
    environment = os.environ | {"OUTRIDER_ADMIN_KEY_FILE": str(HERE / "key"), "OUTRIDER_ADMIN_PORT": "8001"}
    if static:
        environment |= {"VLLM_PLUGINS": ""}
    began = time.time()
    with (HERE / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdout=log, stderr=log, env=environment, start_new_session=True
        )
    (HERE / "engine").write_text(json.dumps({"name": name, "pid": child.pid}))
    state = asyncio.run(_until_ready(child))
    save("start", seconds=round(time.time() - began, 1), arguments=extra, table=table, state=state)


async def _until_ready(child: subprocess.Popen[bytes]) -> dict[str, Any]:
    deadline = time.time() + START_S
    async with aiohttp.ClientSession() as session:
        while time.time() < deadline:
            if child.poll() is not None:
                raise SystemExit(f"the engine ended with {child.returncode}; see its log")
            try:
                static = "PROOF_STATIC" in os.environ
                async with session.get(f"{HTTP}/health" if static else f"{ADMIN}/ready") as answer:
                    if answer.status == 200:
                        return {} if static else await _state(session)
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.5)
    raise SystemExit(f"the engine was not ready after {START_S:.0f} s; see its log")


def stop() -> None:
    """End the engine, and all that it started."""
    os.killpg(json.loads((HERE / "engine").read_text())["pid"], signal.SIGTERM)
    time.sleep(8)
    try:
        os.killpg(json.loads((HERE / "engine").read_text())["pid"], signal.SIGKILL)
    except ProcessLookupError:
        return


class Load:
    """Requests against the engine, and what became of them."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session, self.sent, self.finished, self.failed = session, 0, 0, 0
        self.reasons: list[str] = []
        """Of each request without a whole answer."""
        self.tasks: set[asyncio.Task[None]] = set()

    def send(self, prompt: int, tokens: int) -> None:
        """Send one request and go on."""
        self.sent += 1
        task = asyncio.create_task(self._request(prompt, tokens))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def open_loop(self, rate: float, seconds: float, prompt: int = 256, tokens: int = 200) -> None:
        """Poisson arrivals."""
        began, at = time.time(), 0.0
        while (at := at + rng.expovariate(rate)) < seconds:
            await asyncio.sleep(max(0.0, began + at - time.time()))
            self.send(prompt, tokens)

    async def drain(self, seconds: float = DRAIN_S) -> int:
        """Wait for all; the number that did not come back."""
        if self.tasks:
            await asyncio.wait(set(self.tasks), timeout=seconds)
        left = len(self.tasks)
        await self.cancel()
        return left

    async def cancel(self) -> None:
        """Hang up on all."""
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _request(self, prompt: int, tokens: int) -> None:
        body = {
            "model": "m", "prompt": [rng.randrange(1000, 120000) for _ in range(prompt)], "max_tokens": tokens,
            "temperature": 0.0, "ignore_eos": True, "return_token_ids": True,
        }  # fmt: skip
        try:
            async with self.session.post(f"{HTTP}/v1/completions", json=body) as answer:
                document = await answer.json()
                whole = answer.status == 200 and len(document["choices"][0]["token_ids"]) == tokens
                self.finished += whole
                self.failed += not whole
                if not whole:
                    self.reasons.append(f"{answer.status} {str(document)[:200]}")
        except (aiohttp.ClientError, TimeoutError) as error:
            self.failed += 1
            self.reasons.append(repr(error)[:200])


class Stream:
    """One streamed request, and when each of its tokens came."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.chunks: list[tuple[float, int]] = []

    async def run(self, prompt: int, tokens: int) -> None:
        """Read until the end; K changes and cancellation come from outside."""
        body = {
            "model": "m", "prompt": [rng.randrange(1000, 120000) for _ in range(prompt)], "max_tokens": tokens,
            "temperature": 0.0, "ignore_eos": True, "return_token_ids": True, "stream": True,
        }  # fmt: skip
        async with self.session.post(f"{HTTP}/v1/completions", json=body) as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    ids = [one.get("token_ids") or () for one in json.loads(line[6:])["choices"]]
                    if ids and ids[0]:
                        self.chunks.append((time.perf_counter(), len(ids[0])))

    def seconds_a_token(self, since: float, until: float) -> float:
        """From the first token to the last that came in this time."""
        inside = [chunk for chunk in self.chunks if since <= chunk[0] < until]
        return (inside[-1][0] - inside[0][0]) / sum(count for _, count in inside[1:])

    def last_of_several(self, since: float) -> int:
        """Number of the last step after a moment that brought more than one token; 0 if none did."""
        counts = [count for at, count in self.chunks if at >= since]
        return max((number for number, count in enumerate(counts, start=1) if count > 1), default=0)


async def open_loop(rates: str, policies: str, seconds: float) -> None:
    """A row for each rate and policy."""
    async with _session() as session:
        for rate in map(float, rates.split(",")):
            for policy in policies.split(","):
                if policy != "static":
                    await _put(session, TABLE if policy == "table" else [[1, 256, int(policy)]])
                    await asyncio.sleep(0.3)
                    await _state(session)  # reading the state starts a new "longest step"
                before, load = await _metrics(session), Load(session)
                began = time.time()
                await load.open_loop(rate, seconds)
                unfinished = await load.drain()
                took, after = time.time() - began, await _metrics(session)
                state = {} if policy == "static" else await _state(session)
                save(
                    "open", rate=rate, policy=policy, seconds=seconds, requests=load.sent, unfinished=unfinished,
                    failed=load.failed, reasons=load.reasons[:5],
                    tokens_per_second=round(_delta(before, after, "vllm:generation_tokens_total") / took),
                    **_tpot(before, after), longest_step_s=state.get("longestStepSeconds"), stalls=state.get("stalls"),
                    steps=_decode_cells(before, after),
                )  # fmt: skip


async def puts(count: int) -> None:
    """Round trips under 40 requests a second."""
    async with _session() as session:
        load = Load(session)
        task = asyncio.create_task(load.open_loop(40, count * 0.1 + 5))
        await asyncio.sleep(3)
        times = []
        for number in range(count):
            began = time.perf_counter()
            await _put(session, [[1, 256, (0, 1, 2, 3, 5)[number % 5]]])
            times.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(0.01)
        times.sort()
        task.cancel()
        await load.cancel()
        save(
            "puts", count=count, put_ms_p50=round(statistics.median(times), 2),
            put_ms_p99=round(times[int(0.99 * len(times))], 2), put_ms_max=round(times[-1], 2),
        )  # fmt: skip


async def effect(batch: int, count: int) -> None:
    """The last step with more than one token that each stream sees after the answer to K 0, counted from that answer.

    A step at K 5 yields more than one token three times in four. What left the engine before the change and was still
    on its way to the client counts too, so this bounds the engine's own delay from above.
    """
    async with _session() as session:
        streams = [Stream(session) for _ in range(batch)]
        tasks = [asyncio.create_task(stream.run(256, 7500)) for stream in streams]
        await asyncio.sleep(2.0)
        late: list[int] = []
        for _ in range(count):
            await _put(session, [[1, 256, 5]])
            await asyncio.sleep(0.2)
            await _put(session, [[1, 256, 0]])
            answered = time.perf_counter()
            await asyncio.sleep(0.3)
            late += [stream.last_of_several(answered) for stream in streams]
            if any(task.done() for task in tasks):
                break
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        save(
            "effect", batch=batch, changes=len(late) // batch, steps_median=statistics.median(late),
            steps_max=max(late), streams_by_steps={steps: late.count(steps) for steps in sorted(set(late))},
        )  # fmt: skip


async def random_changes(seconds: float, rate: float) -> None:
    """Random schedules under load, a row every half minute."""
    async with _session() as session:
        load, began, changes, refused = Load(session), time.time(), 0, 0
        next_request = next_change = next_row = began
        while (now := time.time()) < began + seconds:
            if now >= next_request and len(load.tasks) < 140:
                next_request = max(next_request + rng.expovariate(rate), now - 1)
                load.send(rng.choice([16, 64, 256, 256, 700, 2000]), rng.randrange(20, 400))
            if now >= next_change:
                changes += 1
                refused += not await _put(session, _random_rows())
                next_change = now + rng.uniform(0.05, 0.2)
            if now >= next_row + 30:
                next_row = now
                state = await _state(session)
                save(
                    "random_part", seconds=round(now - began), changes=changes, sent=load.sent, finished=load.finished,
                    failed=load.failed, longest_step_s=state.get("longestStepSeconds"), stalls=state.get("stalls"),
                )  # fmt: skip
            await asyncio.sleep(0.004)
        unfinished = await load.drain()
        state = await _state(session)
        save(
            "random", seconds=round(time.time() - began, 1), rate=rate, changes=changes, refused=refused,
            sent=load.sent, finished=load.finished, failed=load.failed, unfinished=unfinished, reasons=load.reasons[:5],
            steps=state["stepsBySpeculativeTokens"], longest_step_s=state.get("longestStepSeconds"),
            stalls=state.get("stalls"),
        )  # fmt: skip


def _random_rows() -> list[list[int]]:
    ks = (0, 1, 2, 3, 5)
    if rng.random() < 0.6:
        return [[1, 256, rng.choice(ks)]]
    bands = ((1, 20), (21, 60), (61, 110), (111, 256))
    return [[first, last, rng.choice(ks)] for first, last in bands]


async def overhead(batch: int, rounds: int) -> None:
    """Step times at a fixed batch and K 0 with measuring on, off, off and on: steps get slower as contexts grow, and
    evenly so, which this order cancels. The clock is that of one streaming request, which gets a token each step."""
    async with _session() as session:
        await _put(session, [[1, 256, 0]])
        ratios, clocks = [], []
        for _ in range(rounds):
            load, stream = Load(session), Stream(session)
            for _ in range(batch - 1):
                load.send(256, 7000)
            task = asyncio.create_task(stream.run(256, 7000))
            await asyncio.sleep(1.5)
            spent: dict[bool, list[float]] = {True: [], False: []}
            for on in (True, False, False, True):
                await session.put(f"{ADMIN}/measuring", json={"enabled": on}, headers=HEADERS)
                await asyncio.sleep(0.1)
                before, began = await _metrics(session), time.perf_counter()
                await asyncio.sleep(SEGMENT_S)
                spent[on].append(stream.seconds_a_token(began, time.perf_counter()))
                if on:
                    cells = _decode_cells(before, await _metrics(session))
                    steps, seconds = sum(c["steps"] for c in cells), sum(c["seconds"] for c in cells)
                    clocks.append(seconds / steps / spent[on][-1] if steps else None)
            ratios.append((sum(spent[True]) / sum(spent[False]) - 1) * 100)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await load.cancel()
            await asyncio.sleep(0.4)
        await session.put(f"{ADMIN}/measuring", json={"enabled": True}, headers=HEADERS)
        middle, half = statistics.mean(ratios), STUDENT * statistics.stdev(ratios) / len(ratios) ** 0.5
        save(
            "overhead", batch=batch, rounds=rounds,
            percent=[round(ratio, 3) for ratio in ratios], mean=round(middle, 3), median=statistics.median(ratios),
            low=round(middle - half, 3), high=round(middle + half, 3),
            reported_over_clock=[round(c, 4) for c in clocks if c],
        )  # fmt: skip


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None, sock_connect=10)
    )


_generation = -1


async def _put(session: aiohttp.ClientSession, rows: list[list[int]]) -> bool:
    global _generation
    if _generation < 0:
        _generation = (await _state(session))["generation"]
    _generation += 1
    body = {"generation": _generation, "schedule": rows, "leaseSeconds": 3600}
    async with session.put(f"{ADMIN}/schedule", json=body, headers=HEADERS) as answer:
        if answer.status != 200:
            print(answer.status, await answer.text(), flush=True)
        return answer.status == 200


async def _state(session: aiohttp.ClientSession) -> dict[str, Any]:
    async with session.get(f"{ADMIN}/schedule", headers=HEADERS) as answer:
        state: dict[str, Any] = await answer.json()
        state.pop("effective", None)
        return state


async def _metrics(session: aiohttp.ClientSession) -> dict[str, float]:
    async with session.get(f"{HTTP}/metrics") as answer:
        text = await answer.text()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
    }


def _sum(metrics: dict[str, float], name: str, label: str = "") -> float:
    return sum(value for key, value in metrics.items() if key.partition("{")[0] == name and label in key)


def _delta(before: dict[str, float], after: dict[str, float], name: str, label: str = "") -> float:
    return _sum(after, name, label) - _sum(before, name, label)


def _tpot(before: dict[str, float], after: dict[str, float]) -> dict[str, float | None]:
    name = "vllm:request_time_per_output_token_seconds"
    count, total = _delta(before, after, f"{name}_count"), _delta(before, after, f"{name}_sum")
    bounds = sorted({float(bound) for key in after if key.startswith(f"{name}_bucket") for bound in _label(key, "le")})
    p99 = next(
        (
            b
            for b in bounds
            if _delta(before, after, f"{name}_bucket", f'le="{_written(after, name, b)}"') >= 0.99 * count
        ),
        None,
    )
    return {"tpot_ms_mean": round(total / count * 1e3, 2) if count else None, "tpot_ms_p99_below": p99 and p99 * 1e3}


def _label(key: str, label: str) -> list[str]:
    return re.findall(rf'{label}="([^"]*)"', key)


def _written(metrics: dict[str, float], name: str, bound: float) -> str:
    return next(
        le for key in metrics if key.startswith(f"{name}_bucket") for le in _label(key, "le") if float(le) == bound
    )


def _decode_cells(before: dict[str, float], after: dict[str, float]) -> list[dict[str, Any]]:
    cells = []
    for key, value in after.items():
        if key.startswith("outrider_engine_steps_total") and 'kind="decode"' in key and value > before.get(key, 0.0):
            other = key.replace("steps_total", "step_seconds_total")
            seconds = after[other] - before.get(other, 0.0)
            steps = value - before.get(key, 0.0)
            batch, k = _label(key, "batch")[0], _label(key, "speculative_tokens")[0]
            cells.append({"batch": int(batch), "k": int(k), "steps": int(steps), "seconds": round(seconds, 4),
                          "ms": round(seconds / steps * 1e3, 3)})  # fmt: skip
    return cells


def _name() -> str:
    return str(json.loads((HERE / "engine").read_text())["name"])


def main() -> None:
    """Run one command."""
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "start":
        start(arguments[0], arguments[1:])
    elif command == "stop":
        stop()
    elif command == "open":
        asyncio.run(open_loop(arguments[0], arguments[1], float(arguments[2])))
    elif command == "puts":
        asyncio.run(puts(int(arguments[0])))
    elif command == "effect":
        asyncio.run(effect(int(arguments[0]), int(arguments[1])))
    elif command == "random":
        asyncio.run(random_changes(float(arguments[0]), float(arguments[1])))
    elif command == "overhead":
        asyncio.run(overhead(int(arguments[0]), int(arguments[1])))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
