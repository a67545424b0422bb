"""The profile that the project ships of the card measured last, made of its calibration."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu import calibration
from benchmarks.gpu.rows import Results

PATH = Path("operator/outrider/simulator/data/h200-llama8b-eagle.json")
DIGITS = 6


def document(results: Results, capture_size: int) -> dict[str, Any]:
    """As `outrider.simulator.profile.parse_profile` and `outrider predict` read it."""
    card, found = calibration.profile(results, capture_size), calibration.cells(results)
    start, shortest = results.start, min(one.prompt for one in found)
    return {
        "source": {
            "hardware": f"one {start['card']} (card, driver, memory)",
            "date": datetime.fromtimestamp(start["at"], UTC).strftime("%Y-%m-%d"),
            "versions": {name: start[name] for name in ("vllm", "torch", "triton", "python")},
            "engine": "the operator's command line for benchmarks/gpu/service.yaml: V2 runner, 256 requests at most",
            "model": {
                "dims": "Llama-3.1-8B (32 layers, hidden 4096, 32 heads, 8 KV heads, vocabulary 128256), bf16, random"
                " weights",
                "drafter": "EAGLE, one layer of the same width",
                "speculative_tokens_max": calibration.CEILING,
            },
            "caveats": [
                "acceptance is synthetic: position i accepted with unconditional probability 0.75^i",
                "cuBLAS, cuDNN and cuSPARSELt are one patch level below torch 2.14.0's pin",
                "step time is the plugin's mean over a window of 1.0 s; it stands for the median too",
                "context is read off the share of the KV cache in use, in the middle of the window",
                "prefill is the step of one prompt on an idle engine with the drafter, less its drafting passes",
                "no run without a drafter was held: context_us_per_1000_tokens is of rows with it, at two contexts",
            ],
        },
        "acceptance": [round(share, DIGITS) for share in card.acceptance],
        "rows": [
            {
                "batch": one.batch, "speculative_tokens": one.k, "context": round(one.context), "prompt": one.prompt,
                "capture_size": capture_size, "step_time_ms_median": round(1e3 * one.seconds, 4),
                "step_time_ms_mean": round(1e3 * one.seconds, 4), "steps": int(one.steps), "noisy": False,
                "beyond_capture": one.batch * (one.k + 1) > capture_size,
            }
            for one in found if one.prompt == shortest
        ],
        "prefill": _points(card.prefill_tokens, card.prefill_seconds),
        "context_us_per_1000_tokens": round(1e9 * card.context_s, 3),
        "beside_decoding": {
            "prompt_us_per_token": round(1e6 * card.prompt_s, 3),
            "jump_ms": round(1e3 * card.jump_s, 4),
            "prefill": _points(card.beside_tokens, card.beside_seconds),
        },
    }  # fmt: skip


def write(results: Results, capture_size: int, path: Path = PATH) -> None:
    """The file."""
    path.write_text(json.dumps(document(results, capture_size), indent=1) + "\n")


def _points(tokens: tuple[float, ...], seconds: tuple[float, ...]) -> list[dict[str, float]]:
    return [{"tokens": int(x), "ttft_ms": round(1e3 * y, 4)} for x, y in zip(tokens, seconds, strict=True)]
