"""Writes what the rows say: `gpu.json` for programs, `gpu.md` and its plot for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.gpu import calibration, plot
from benchmarks.gpu.arrivals import Arriving, arriving
from benchmarks.gpu.calibration import Fit
from benchmarks.gpu.compare import FIGURES, SEEDS, Compared, Model, Ranked, compare, decode_ms, ranking, worst
from benchmarks.gpu.headline import (
    DEFINITIONS,
    FIXED,
    NONE,
    OUTRIDER,
    TARGETS,
    Found,
    by_level,
    headline,
    headroom,
    rounds,
)
from benchmarks.gpu.rows import Results, read_all
from benchmarks.markdown import rounded, table_lines, text

FOLDER = Path("docs/benchmarks")
NOTES = Path(__file__).parent / "notes.md"
COMMAND = "python -m benchmarks.gpu compare"


ARRIVED_ON = "H100"
"""In the name of the card of the runtime plugin's rows."""


@dataclass(frozen=True, slots=True)
class Card:
    """What one card's boots say."""

    boots: Sequence[Results]
    fit: Fit
    model: Model
    compared: Sequence[Compared]
    plain: Sequence[Compared]
    """The same by the simulator as it was."""
    figures: Mapping[str, Found]

    @classmethod
    def of(cls, boots: Sequence[Results]) -> Card:
        """The first boot was calibrated."""
        model = Model.of(boots[0])
        compared = compare(boots, model)
        fit = calibration.fit(boots[0], model.settings.capture_size)
        return cls(boots, fit, model, compared, compare(boots, model.plain()), headline(boots, compared))

    @property
    def name(self) -> str:
        """As its driver calls it."""
        return self.boots[0].card


@dataclass(frozen=True, slots=True)
class Findings:
    """All that the page tells."""

    cards: Sequence[Card]
    """The one measured last is first: the figures are its."""
    arriving: Sequence[Arriving]

    @classmethod
    def of(cls, folder: Path = FOLDER) -> Findings:
        """From the rows under the folder of the benchmarks' pages."""
        cards = [Card.of(boots) for boots in read_all(folder / "gpu")]
        same = next((card for card in cards if ARRIVED_ON in card.name), None)
        return cls(cards, arriving(folder / "runtime", same.model) if same else [])


def write(found: Findings, folder: Path) -> None:
    """All three files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(document(found), indent=1) + "\n")
    plot.write(found.cards[0].compared, found.cards[0].plain, folder)
    plot.write_worth(found.cards[0].boots, folder)
    (folder / "gpu.md").write_text("\n".join(_page(found)))


def document(found: Findings) -> dict[str, Any]:
    """The content of `gpu.json`: the card measured last, and the others below it."""
    first, *others = found.cards
    return {
        **_card(first),
        "open_loop_tpot_ms": [
            {"rate": one.rate, "k": one.k, "gpu": one.measured, "simulator": [rounded(ms) for ms in one.simulated]}
            for one in found.arriving
        ],
        "other_cards": [_card(card) for card in others],
    }


def _card(found: Card) -> dict[str, Any]:
    held = found.fit.held_out
    errors = {
        "in_range": found.fit.in_range,
        "batch_out": held.batch,
        "k_out": held.k,
        "from_96_to_128_up": held.load,
        "shipped_profile": found.fit.shipped,
    }
    return {
        "headline": {key: rounded(one.value) for key, one in found.figures.items()},
        "not_measured": {key: one.why for key, one in found.figures.items() if one.value is None},
        "worst_at": {key: one.where for key, one in found.figures.items() if one.where},
        "before_mending": {name: rounded(value) for name, value in _before(found).items()},
        "run": {
            "command": COMMAND, "seeds": SEEDS,
            "boots": [{**boot.start, "date": _date(boot)} for boot in found.boots],
        },
        "fit_mape_percent": {key: rounded(None if one is None else 100.0 * one) for key, one in errors.items()},
        "model": {
            "context_us_per_1000_tokens": rounded(1e9 * found.model.profile.context_s),
            "prompt_us_per_token": rounded(1e6 * found.model.profile.prompt_s),
            "jump_ms": rounded(1e3 * found.model.profile.jump_s),
            "front_ms": rounded(1e3 * found.model.front_s),
        },
        "worth": [
            {"level": level, "arm": arm, "tokens_per_second": list(many)}
            for (level, arm), many in by_level(found.boots).items()
        ],
        "levels": [_level(one, before) for one, before in zip(found.compared, found.plain, strict=True)],
        "ranking": [
            {"level": one.level, "arms": one.arms, "gpu_percent": rounded(100.0 * one.gpu),
             "simulator_percent": rounded(100.0 * one.simulator), "agrees": one.agrees}
            for one in ranking(found.compared)
        ],
    }  # fmt: skip


def _before(found: Card) -> dict[str, float]:
    """The two errors of the simulator as the other benchmarks use it, percent."""
    figures = {"throughput_error_percent": "tokens_per_second", "tpot_error_percent": "tpot_mean_ms"}
    return {name: 100.0 * abs(worst(found.plain, figure).error(figure)) for name, figure in figures.items()}


def _level(one: Compared, before: Compared) -> dict[str, Any]:
    return {
        "arm": one.arm, "level": one.level, "rounds": len(one.measured),
        "gpu": {name: rounded(one.gpu(name)) for name in FIGURES},
        "simulator": {name: rounded(one.simulator(name)) for name in FIGURES},
        "error_percent": {name: rounded(100.0 * one.error(name)) for name in FIGURES},
        "error_before_percent": {name: rounded(100.0 * before.error(name)) for name in FIGURES},
    }  # fmt: skip


def _page(found: Findings) -> list[str]:
    first, *others = found.cards
    return [
        "# Outrider on a GPU",
        "",
        f"Written by `{COMMAND}` from the rows in [gpu/](gpu/README.md) and [runtime/](runtime/README.md); no GPU is"
        " needed to write it again. Do not edit; the last sections come from `benchmarks/gpu/notes.md`.",
        "",
        *(line for card in found.cards for boot in card.boots for line in _boot(boot)),
        "## Figures",
        "",
        f"Of the {first.name}; rows of different cards are never put together.",
        "",
        *table_lines(["figure", "reach", "found", "worst at", "met"], _figures(first.figures)),
        "",
        *(f"- `{key}`: {one.why}" for key, one in first.figures.items() if one.value is None),
        "",
        "The simulator's two errors are with what was mended, see below, some of it after these passes; as the other"
        f" benchmarks use it they are {' and '.join(map(text, _before(first).values()))} %.",
        "",
        "What they mean:",
        "",
        *(f"- `{key}`: {words}" for key, words in DEFINITIONS.items()),
        "",
        *_worth(first),
        *_fit(first),
        *_levels(first, "gpu-simulator.svg"),
        *_ranking(ranking(first.compared)),
        *(line for card in others for line in (*_fit(card), *_levels(card, ""))),
        *_arriving(found.arriving),
        NOTES.read_text(),
    ]


def _worth(found: Card) -> list[str]:
    many = by_level(found.boots)
    levels, arms = (list(dict.fromkeys(part)) for part in zip(*many, strict=True))
    body = []
    for arm in sorted(arms, key=[OUTRIDER, NONE, *FIXED, *arms].index):
        cells = (many.get((level, arm), ()) for level in levels)
        body.append([arm, *(f"{fmean(one):.0f} ({min(one):.0f} to {max(one):.0f})" if one else "–" for one in cells)])
    return [
        f"## What it is worth: {found.name}",
        "",
        "Tokens a second by requests in flight, in the order of the trace: mean over rounds, lowest and highest.",
        "",
        *table_lines(["arm", *map(str, levels)], body),
        "",
        f"A table that takes the best of K 1, 3 and 5 at each level yields {text(100.0 * headroom(found.boots))} % more"
        f" than the best single K over the trace; Outrider, which may take K 0 and 2 too,"
        f" {text(found.figures['gain_vs_best_fixed_mixed_percent'].value)} %.",
        "",
        "![Tokens a second against the best arm](gpu-worth.svg)",
        "",
    ]


def _boot(boot: Results) -> list[str]:
    start = boot.start
    arms = dict.fromkeys(row["arm"] for row in boot.levels)
    played = ", ".join(f"{arm} {rounds([boot], arm)}" for arm in arms)
    return [
        f"- {_date(boot)}, {start['card']} (card, driver, memory): vLLM {start['vllm']}, torch {start['torch']}, triton"
        f" {start['triton']}, Python {start['python']}; tuning {start['tuning']}, ready after {start['seconds']:g} s;"
        f" {sum(bool(row['steps']) for row in boot.cells)} of {len(boot.cells)} cells of batch and K measured; whole"
        f" passes over the trace: {played or 'none'}.",
        "",
    ]


def _date(boot: Results) -> str:
    return datetime.fromtimestamp(boot.start["at"], UTC).strftime("%Y-%m-%d")


def _figures(figures: Mapping[str, Found]) -> list[list[str]]:
    rows = []
    for key, one in figures.items():
        target = TARGETS.get(key)
        value = ("no", "yes")[one.value] if isinstance(one.value, bool) else text(one.value)
        met = "" if target is None or one.value is None else "yes" if target.met(one.value) else "**no**"
        rows.append([f"`{key}`", str(target or ""), value, one.where, met])
    return rows


def _fit(found: Card) -> list[str]:
    fit = found.fit
    asked = {
        "all cells, in range": fit.in_range, "one inner batch left out": fit.held_out.batch,
        "one K left out": fit.held_out.k, "fitted to batches up to 96, asked from 128 on": fit.held_out.load,
        "the shipped profile's rows, interpolated for these cells": fit.shipped,
    }  # fmt: skip
    body = [[what, text(None if error is None else 100.0 * error)] for what, error in asked.items()]
    return [
        f"## The step-time law on this calibration: {found.name}",
        "",
        "Mean absolute error of `core/latency`, percent, from the generic prior; the same questions as"
        " `python -m benchmarks.fit` asks of the shipped profile.",
        "",
        *table_lines(["question", "error, %"], body),
        "",
    ]


def _levels(found: Card, plot: str) -> list[str]:
    body = []
    for one, before in zip(found.compared, found.plain, strict=True):
        body.append([
            one.arm, str(one.level), text(one.gpu("tokens_per_second")),
            *(f"{100.0 * one.error(name):+.1f} ({100.0 * before.error(name):+.1f})" for name in FIGURES),
            f"{_tenths(decode_ms(one.measured[0]))} / {_tenths(decode_ms(one.simulated[0]))}",
        ])  # fmt: skip
    spread = 100.0 * max(one.spread("tokens_per_second") for one in found.compared)
    return [
        f"## The same passes in the simulator: {found.name}",
        "",
        f"Requests in flight as on the GPU, with the same lengths in seed 0 of {SEEDS}; Outrider's control law runs in"
        " both. Error of the simulator in percent, mean over seeds; in brackets that of the simulator as the other"
        " benchmarks use it. The last column is the mean decode-only step, ms, by the plugin's meter and by the"
        f" simulator's. Seeds lie up to {spread:.1f} % apart in throughput.",
        "",
        *table_lines(
            ["arm", "in flight", "GPU tokens/s", "throughput", "TPOT mean", "TPOT P99", "TTFT mean", "TTFT P99",
             "decode step GPU / simulator"],
            body,
        ),
        "",
        *([f"![Error of throughput by arm and level]({plot})", ""] if plot else []),
    ]  # fmt: skip


def _tenths(ms: float | None) -> str:
    return "–" if ms is None else f"{ms:.1f}"


def _ranking(pairs: Sequence[Ranked]) -> list[str]:
    body = [
        [str(one.level), " over ".join(one.arms), f"{100.0 * one.gpu:+.1f}", f"{100.0 * one.simulator:+.1f}",
         "yes" if one.agrees else "**no**"]
        for one in pairs
    ]  # fmt: skip
    return [
        "## Who is ahead",
        "",
        "Two arms at a level, where they lie more than 5 % apart on the GPU: tokens a second of the first over the"
        " second, percent.",
        "",
        *table_lines(["in flight", "arms", "GPU", "simulator", "same order"], body),
        "",
    ]


def _arriving(rows: Sequence[Arriving]) -> list[str]:
    body = [
        [f"{one.rate:g}", str(one.k), " / ".join(f"{ms:.1f}" for ms in one.measured),
         f"{min(one.simulated):.1f} to {max(one.simulated):.1f}", f"{100.0 * one.error:+.0f}"]
        for one in rows
    ]  # fmt: skip
    return [
        f"## Open loop, another boot: {ARRIVED_ON}",
        "",
        "Mean TPOT, ms, of the [runtime plugin's rows](runtime/README.md) (6 to 8 s each, one value a run) beside the"
        " simulator with this calibration, five draws of the arrivals. K 1 at 40 requests a second is left out: that"
        " page says it says nothing.",
        "",
        *table_lines(["requests a second", "K", "GPU", "simulator", "error of the mean, %"], body),
        "",
    ]
