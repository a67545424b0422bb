"""One engine on this machine, started by the command line that the operator renders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from outrider.api.defaults import resolve
from outrider.api.resource import parse
from outrider.manifests import engine_container, engine_settings
from outrider.reconcile.configuration import controller_config
from outrider.replay.virtual import read_manifest

HTTP, ADMIN = "http://127.0.0.1:8000", "http://127.0.0.1:8001"
KEY = "benchmark"
MANIFEST = Path(__file__).parent / "service.yaml"
START_S = 500.0
"""Cold caches on an H100: 235 s were seen."""
ACCEPTANCE = 0.75
"""Of each drafted token whose predecessors were accepted."""
PERIOD_S = 5.0
"""A third of the operator's control period: time on a GPU is short."""
TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "bos_token_id": 128000,
    "eos_token_id": 128001, "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 16384,
    "mlp_bias": False, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "torch_dtype": "bfloat16", "vocab_size": 128256,
    "tie_word_embeddings": False, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 32,
}  # fmt: skip
"""Llama-3.1-8B's shape; the drafter has one such layer."""


def manifest(tuning: str) -> dict[str, Any]:
    """The benchmark's resource with this tuning mode; ``Off`` is an engine without a drafter."""
    found = read_manifest(MANIFEST)
    found["spec"]["speculation"]["tuning"] = {"mode": tuning}
    return {**found, "metadata": {"uid": "gpu", "generation": 1, **found["metadata"]}}


def rendered(tuning: str) -> tuple[list[str], dict[str, str], Any]:
    """Command line, environment and the control law's configuration, as the operator makes them."""
    resource = parse(manifest(tuning))
    resolved = resolve(resource.spec)
    container = engine_container.build(resource, resolved, engine_settings.engine_config(resource, resolved))
    environment = {one["name"]: one["value"] for one in container.env if "value" in one}
    return list(container.args), environment, controller_config(resolved, container, period_s=PERIOD_S)


def start(folder: Path, tuning: str) -> float:
    """Start an engine in a process session of its own and wait until it is ready; seconds that it took.

    Raises:
        SystemExit: it ended, or was not ready in time; its log is in the folder.
    """
    folder.mkdir(exist_ok=True)
    for name, layers in (("target", 32), ("drafter", 1)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps(TARGET | {"num_hidden_layers": layers}))
    (folder / "key").write_text(KEY)
    arguments, environment, _ = rendered(tuning)
    arguments = _with_dummies(arguments, folder)
    own = {key: value for key, value in environment.items() if key.startswith(("VLLM_", "OUTRIDER_"))}
    own |= {"OUTRIDER_ADMIN_KEY_FILE": str(folder / "key"), "VLLM_CACHE_ROOT": str(folder / "cache")}
    own.pop("OUTRIDER_SCHEDULE_FILE", None)
    began = time.monotonic()
    with (folder / f"engine-{tuning}.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "outrider_runtime.serve", *arguments], stdout=log, stderr=log,
            env=os.environ | own, start_new_session=True,
        )  # fmt: skip
    (folder / "pid").write_text(str(child.pid))
    while time.monotonic() < began + START_S:
        if child.poll() is not None:
            raise SystemExit(f"the engine ended with {child.returncode}; see {log.name}")
        if _answers(f"{ADMIN}/ready"):
            return time.monotonic() - began
        time.sleep(0.5)
    raise SystemExit(f"the engine was not ready after {START_S:.0f} s; see {log.name}")


def stop(folder: Path) -> None:
    """End the engine and all that it started; a second one on the card would fail."""
    pid = int((folder / "pid").read_text())
    os.killpg(pid, signal.SIGTERM)
    time.sleep(8)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    time.sleep(2)


def _with_dummies(arguments: list[str], folder: Path) -> list[str]:
    """The rendered line with models of our own in place of those that would be downloaded."""
    arguments = list(arguments)
    arguments[arguments.index("--model") + 1] = str(folder / "target")
    if "--speculative-config" in arguments:
        at = arguments.index("--speculative-config") + 1
        speculation = json.loads(arguments[at])
        ceiling = speculation["num_speculative_tokens"]
        speculation |= {
            "model": str(folder / "drafter"), "rejection_sample_method": "synthetic",
            "synthetic_acceptance_rates": [ACCEPTANCE ** (position + 1) for position in range(ceiling)],
        }  # fmt: skip
        arguments[at] = json.dumps(speculation)
    return [
        *arguments, "--load-format", "dummy", "--skip-tokenizer-init", "--no-enable-prefix-caching",
        "--gpu-memory-utilization", "0.88", "--host", "127.0.0.1",
    ]  # fmt: skip


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
