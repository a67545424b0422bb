"""Open-loop rows of the runtime plugin's proof beside the simulator, as a coarse check on another card's boot.

Those rows last 6 to 8 seconds, and their arrivals cannot be drawn again: they say whether the simulator is far off, and
no more. Only TPOT is compared: the tokens of an open loop are what arrives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks.gpu.compare import Model
from benchmarks.gpu.rows import Row
from outrider.core.schedule import constant
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.request import RequestRecord
from outrider.simulator.workload import poisson

ENGINE = "nested"
"""The one whose command line is the operator's."""
PROMPT_TOKENS, OUTPUT_TOKENS = 256, 200
NOT_QUOTED = {(40.0, 1)}
"""Rate and K of which the page of those rows says that they say nothing."""
SEEDS = 5
DRAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Arriving:
    """Mean TPOT, ms, at one rate and K: a value a row, and one a seed."""

    rate: float
    k: int
    measured: tuple[float, ...]
    simulated: tuple[float, ...]

    @property
    def error(self) -> float:
        """Mean of the simulator over that of the rows, less 1."""
        return fmean(self.simulated) / fmean(self.measured) - 1.0


def arriving(folder: Path, model: Model) -> list[Arriving]:
    """Each rate and single K with the rows of a folder."""
    rows: dict[tuple[float, int], list[float]] = {}
    seconds, captured = 0.0, 0
    for row in _rows(folder):
        if row["kind"] == "start":
            captured = row["state"]["captureSizes"][-1]
        elif row["policy"].isdigit() and (row["rate"], int(row["policy"])) not in NOT_QUOTED:
            rows.setdefault((row["rate"], int(row["policy"])), []).append(row["tpot_ms_mean"])
            seconds = max(seconds, row["seconds"])
    if not rows:
        return []
    same = replace(model, settings=replace(model.settings, capture_sizes=(captured,)))
    return [
        Arriving(rate, k, tuple(many), tuple(_tpot_ms(same, rate, k, seconds, seed) for seed in range(SEEDS)))
        for (rate, k), many in sorted(rows.items())
    ]


def _rows(folder: Path) -> Iterator[Row]:
    for path in sorted(folder.glob("results-*.jsonl")):
        for row in map(json.loads, path.read_text().splitlines()):
            if row["kind"] in ("start", "open") and row["engine"] == ENGINE:
                yield row


def _tpot_ms(model: Model, rate: float, k: int, seconds: float, seed: int) -> float:
    engine = SimulatedEngine(model.settings, model.profile, seed=seed)
    engine.set_schedule(constant(k, model.settings.max_num_seqs))
    records: list[RequestRecord] = []
    engine.on_finish = records.append
    for request in poisson(rate, seconds, prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS, seed=seed):
        engine.submit(request, request.arrival_s + model.front_s)
    engine.advance(seconds + DRAIN_S)
    return 1e3 * fmean(record.tpot_s for record in records if record.tpot_s is not None)
