"""Writes what was found: `one_k.json` for programs, `one_k.md` for people; the first is read again by whoever plays
some of the arms anew."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.markdown import figures_section, rounded, table_lines
from benchmarks.one_k.day import BAD_HOURS, FITS, FITS_BADLY, PRESSED, ROLLED, Played, given
from benchmarks.one_k.headline import DEFINITIONS, TARGETS

NOTES = Path(__file__).parent / "notes.md"
"""What people wrote about the last full run; it follows the figures."""

SETTING = (
    "An engine of two data ranks, which can only be told another K by a restart, serves a day of 4 to 200 clients, each"
    " asking again as soon as it is answered; the conditional acceptance of drafts is"
    f" {FITS}, and {FITS_BADLY} from {BAD_HOURS[0]:.0f} to {BAD_HOURS[1]:.0f} o'clock. It is a simulated vLLM with the"
    " step times of a measured H100, without our plugin, and it stands for all replicas of a service: what a roll-out"
    f" gains and costs grows with their number alike. The day is played {PRESSED:.0f} times faster, and so are the half"
    " hour that a K is kept and the two minutes that an engine starts; requests, scrapes and control passes are not, so"
    " that an old engine takes that many times longer to end what it had begun, and windows tell that many times less."
)


def write(found: Sequence[Played], figures: Mapping[str, Figure], about: Mapping[str, Any], folder: Path) -> None:
    """Both files."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "headline": {key: rounded(figure.value) for key, figure in figures.items()},
        "spread": {key: {k: rounded(v) for k, v in asdict(figure).items()} for key, figure in figures.items()},
        "run": dict(about),
        "arms": [asdict(one) | {"tokens": [round(hour) for hour in one.tokens]} for one in found],
    }
    (folder / "one_k.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "one_k.md").write_text("\n".join(_page(found, figures, about)))


def read(folder: Path) -> dict[tuple[str, int], Played]:
    """The arms of the last run."""
    document = json.loads((folder / "one_k.json").read_text())
    return {(one["name"], one["seed"]): Played(**one) for one in document["arms"]}


def _page(found: Sequence[Played], figures: Mapping[str, Figure], about: Mapping[str, Any]) -> list[str]:
    first = sorted((one for one in found if one.seed == 0), key=lambda one: one.name)
    static = [one for one in first if one.name != ROLLED]
    ours = next(one for one in first if one.name == ROLLED)
    seeds = len({one.seed for one in found})
    return [
        "# One K by roll-out: a day",
        "",
        f"Written by `{about['command']}` on {about['date']}: {about['hours']:g} hours with each K and by roll-out,"
        f" {seeds} {'seed' if seeds == 1 else 'seeds'}, in {about['processor_minutes']} minutes of one processor"
        " core; no GPU is used. Do not edit; what the figures mean for the reader is in the last section, which comes"
        " from `benchmarks/one_k/notes.md`.",
        "",
        SETTING,
        "",
        *figures_section(figures, TARGETS, DEFINITIONS),
        "## Arms",
        "",
        f"Of the first seed. `{given()}` is what the resource gives.",
        "",
        *table_lines(
            ["arm", "tokens a GPU second", "by roll-out over it"],
            [
                [one.name, f"{one.goodput_tps:.0f}", f"{100.0 * (ours.goodput_tps / one.goodput_tps - 1.0):+.1f} %"]
                for one in (*static, ours)
            ],
        ),
        "",
        "## Roll-outs",
        "",
        *table_lines(["hour", "K", "why"], [[f"{hour:.1f}", str(k), why] for hour, k, why in ours.rolls]),
        "",
        "## Tokens by hour, thousands",
        "",
        *table_lines(
            ["hour", *(one.name for one in (*static, ours))],
            [
                [str(hour), *(f"{one.tokens[hour] / 1e3:.0f}" for one in (*static, ours))]
                for hour in range(len(ours.tokens))
            ],
        ),
        "",
        NOTES.read_text() if NOTES.exists() else "",
    ]
