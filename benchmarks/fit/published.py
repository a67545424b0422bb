"""How well the law fits published tables, and predicts what is left out of them, against fits that were published or
made with the plain linear law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.fit.tables import DEEPSEEK, EAGLE, EAGLE_3, GLM, QWEN3, Draft, Throughput
from outrider.core.latency import LatencyModel, fit_points
from outrider.core.step_cells import DEFAULT_CONTEXT
from outrider.core.step_time import GENERIC, Experts, Law, Points, points_of

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

CONTEXT = DEFAULT_CONTEXT
"""Tokens: not published, so what the estimator assumes."""
EXPERTS = Experts(8, 128)
ALPHAS = np.arange(0.40, 0.96, 0.01)
"""Acceptance tried where none was published; E = 1 + α + … + α^K."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean absolute error in percent, and that of the fit to compare with; None where there is none."""

    name: str
    percent: float
    reference_percent: float | None


def figures() -> list[Figure]:
    """All of them."""
    return [
        *_draft(EAGLE, 0.40),
        *_draft(EAGLE_3, 1.16),
        *_experts(QWEN3, 1.85, {"batch 64": 7.7, "batch 1": 3.0, "K 6": 2.7, "K 2": 2.5}),
        *_experts(GLM, 2.5, {}),
        *_deepseek(),
    ]


def _draft(table: Draft, reference: float) -> list[Figure]:
    ks = np.array(list(table.tpot_ms), dtype=np.float64)
    times_s = np.array([table.tpot_ms[k] * table.acceptance_length[k] / 1e3 for k in table.tpot_ms])
    points = points_of(np.ones_like(ks), ks, CONTEXT)
    out = [_error(points, times_s, ks != k, ks == k, None) for k in ks]
    return [
        Figure(f"{table.name}: all", _law_error(points, times_s, None), reference),
        Figure(f"{table.name}: one K left out", _mean(out), None),
    ]


def _experts(table: Throughput, reference: float, left_out: dict[str, float]) -> list[Figure]:
    batch, ks, rate = _cells(table)
    every = np.ones_like(batch, dtype=bool)
    points = points_of(batch, ks, CONTEXT)
    times_s = batch * _lengths(ks, _alpha(points, batch / rate, every)) / rate
    found = [Figure(f"{table.name}: all", _law_error(points, times_s, EXPERTS), reference)]
    for what, expected in left_out.items():
        kind, value = what.split()
        asked = (batch if kind == "batch" else ks) == float(value)
        times_s = batch * _lengths(ks, _alpha(points, batch / rate, ~asked)) / rate
        error = _mean([_error(points, times_s, ~asked, asked, EXPERTS)])
        found.append(Figure(f"{table.name}: {what} left out", error, expected))
    return found


def _deepseek() -> list[Figure]:
    """Without speculation, and with K = 7, whose unknown but constant E is in the times' unit."""
    batch = np.array(DEEPSEEK.batches, dtype=np.float64)
    none_s, seven_s = (batch / np.array(DEEPSEEK.rates[k]) for k in (0, 7))
    none, seven = points_of(batch, 0, CONTEXT, drafter=False), points_of(batch, 7, CONTEXT)
    low = batch <= 128
    return [
        Figure("deepseek_v4: no speculation", _law_error(none, none_s, None), 2.2),
        Figure("deepseek_v4: K 7 to batch 128", _law_error(seven.where(low), seven_s[low], None), 2.1),
        Figure("deepseek_v4: K 7 asked at batch 256", _mean([_error(seven, seven_s, low, ~low, None)]), 20.0),
        Figure("deepseek_v4: none asked at batch 256", _mean([_error(none, none_s, low, ~low, None)]), None),
    ]


def _cells(table: Throughput) -> tuple[Floats, Floats, Floats]:
    cells = [
        (batch, k, rate) for k, rates in table.rates.items() for batch, rate in zip(table.batches, rates, strict=True)
    ]
    batch, ks, rate = np.array(cells, dtype=np.float64).T
    return batch, ks, rate


def _lengths(ks: Floats, alpha: float) -> Floats:
    return np.asarray((1.0 - alpha ** (ks + 1.0)) / (1.0 - alpha))


def _alpha(points: Points, tpot_s: Floats, seen: Mask) -> float:
    """The acceptance under which the law fits best what is seen."""

    def error(alpha: float) -> float:
        times_s = tpot_s * _lengths(points.num_speculative_tokens, alpha)
        return _law_error(points.where(seen), times_s[seen], EXPERTS)

    return float(min(ALPHAS, key=error))


def _model(points: Points, times_s: Floats, experts: Experts | None) -> LatencyModel:
    return fit_points(points, times_s, np.ones_like(times_s), _prior(experts))


def _prior(experts: Experts | None) -> Law:
    """Graph sizes were not published: one law for all steps."""
    return GENERIC.for_engine(0, experts)


def _law_error(points: Points, times_s: Floats, experts: Experts | None) -> float:
    """In sample, of the law alone: measured points would correct themselves."""
    model = _model(points, times_s, experts)
    return _mean([np.abs(model.law.step_time_s(points) / times_s - 1.0)])


def _error(points: Points, times_s: Floats, seen: Mask, asked: Mask, experts: Experts | None) -> Floats:
    model = _model(points.where(seen), times_s[seen], experts)
    return np.asarray(np.abs(model.at(points.where(asked)) / times_s[asked] - 1.0))


def _mean(errors: list[Floats]) -> float:
    return 100.0 * float(np.concatenate(errors).mean())
