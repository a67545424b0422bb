"""Published measurements, typed in from where they were published. Facts, no code; one number a cell, no spread given.

The step time of a row is T = B·E/throughput, or E·TPOT. Where no acceptance was published, E is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Draft:
    """Time per output token by K at batch 1, with the accepted length of each."""

    name: str
    source: str
    acceptance_length: Mapping[int, float]
    """Tokens a step, by K."""
    tpot_ms: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Throughput:
    """Output tokens a second, by K and batch size."""

    name: str
    source: str
    batches: tuple[int, ...]
    rates: Mapping[int, tuple[float, ...]]
    """By K, one a batch."""


EAGLE = Draft(
    "eagle_k_sweep",
    "vLLM issue 20780: Llama-3.1-8B with EAGLE, batch 1 (no speculation: 7.07 ms)",
    {2: 2.10, 3: 2.29, 4: 2.39, 5: 2.43, 6: 2.45, 7: 2.47},
    {2: 4.37, 3: 4.29, 4: 4.48, 5: 4.71, 6: 4.94, 7: 5.20},
)
EAGLE_3 = Draft(
    "eagle3_k_sweep",
    "vLLM issue 20780: Llama-3.1-8B with EAGLE-3, batch 1 (no speculation: 7.07 ms)",
    {2: 2.36, 3: 2.79, 4: 3.08, 5: 3.32, 6: 3.46, 7: 3.54},
    {2: 4.32, 3: 4.09, 4: 4.05, 5: 4.13, 6: 4.20, 7: 4.29},
)
QWEN3 = Throughput(
    "qwen3_235b",
    "SGLang pull request 22246: Qwen3-235B-A22B, 8 of 128 experts a token",
    (1, 2, 4, 8, 16, 32, 64),
    {
        2: (188, 332, 568, 903, 1451, 2297, 3693),
        3: (195, 332, 572, 896, 1531, 2352, 3555),
        4: (199, 333, 572, 911, 1537, 2348, 3400),
        6: (188, 311, 549, 883, 1413, 2239, 3054),
    },
)
GLM = Throughput(
    "glm_4_7",
    "SGLang pull request 22246: GLM-4.7-FP8; expert counts not stated there, those of Qwen3-235B stand in",
    (1, 2, 4, 8, 16, 32, 64),
    {1: (130, 236, 469, 795, 1265, 2090, 3391), 3: (195, 350, 648, 1075, 1766, 2761, 4106)},
)
DEEPSEEK = Throughput(
    "deepseek_v4",
    "vLLM pull request 52362: DeepSeek-V4 with DSpark, ShareGPT, 512 output tokens, MI350 class",
    (4, 8, 16, 32, 64, 128, 256),
    {
        0: (381.5, 729.2, 1342.8, 2393, 4095, 6341, 8879),
        7: (970.3, 1762.6, 2909.5, 4756, 6712, 8779, 7852),
    },
)
