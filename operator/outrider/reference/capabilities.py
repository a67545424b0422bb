"""The page of what each vLLM version can do, from the table that admission and rendering go by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outrider.engine import capabilities as known
from outrider.reference.markdown import cell, table

SIGNS = {True: "yes", False: "–", None: "?"}

INTRODUCTION = f"""\
# What each version of vLLM can do

Admission refuses what a version is known not to have, and admits with a warning what nobody looked at. Versions that
were looked at: {", ".join(known.LOOKED_AT)}; the best known is {known.KNOWN_BEST}.

In the tables `yes` was seen in that version, `–` is missing from it, and `?` is unknown. Between two versions that
disagree the answer is unknown, unless a release is known to have made the change; a version later than the last one is
unknown as well.
"""


def page() -> str:
    """The page as Markdown, the same text for the same table."""
    parts = [
        INTRODUCTION,
        "## Methods\n\nWays to draft (`spec.speculation.method`), by vLLM's word.",
        _histories((f"`{name}`", history) for name, history in sorted(known.METHODS.items())),
        "### The old engine\n\nMethods that a version runs on the engine of before 0.8: other metric names, and no"
        " acceptance by position.",
        _histories(
            (f"`{name}`" if name else "all others", history)
            for name, history in sorted(known.OLD_ENGINE.items(), key=lambda item: (not item[0], item[0]))
        ),
        "## Settings and combinations",
        _histories((f"`{feature.value}`", history) for feature, history in known.FEATURES.items()),
        "## Changing K while an engine runs\n\nWhere K may follow the batch size, and what that rests on. A version"
        " without a row is run as the best known one.",
        *_live(),
        "## Arguments that came, went or were renamed\n\nRefused in `spec.engine.extraArgs` where a version is known"
        " not to have them.",
        table(
            ("argument", "there", "where it is missing", "source"),
            [
                (f"`{flag}`", history.words(), instead, history.source)
                for flag, (history, instead) in sorted(known.FLAGS_BY_VERSION.items())
            ],
        ),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _histories(rows: Iterable[tuple[str, known.History]]) -> str:
    return table(
        ("", *known.LOOKED_AT, "source"),
        [
            (name, *(SIGNS[history.at(version)] for version in known.LOOKED_AT), history.source)
            for name, history in rows
        ],
    )


def _live() -> Iterator[str]:
    for row in known.TABLE:
        versions = f"{'.'.join(map(str, row.first))} up to, without, {'.'.join(map(str, row.before))}"
        yield f"### vLLM {cell(versions)}"
        yield table(
            ("method", "runner", "K may change", "a smaller K drafts less", "evidence"),
            [
                (
                    f"`{name}`",
                    method.runner,
                    ("yes" if method.live.proven else "by reading") if method.live.possible else "no",
                    "yes" if method.drafting_follows_k else "no",
                    method.live.evidence,
                )
                for name, method in sorted(row.methods.items())
            ],
        )
