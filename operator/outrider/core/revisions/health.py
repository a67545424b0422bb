"""Faults of a candidate that end a comparison at once, whatever its speed.

Each is looked at in every window of time, so each needs a distance that noise does not reach in a whole comparison:
`FAR` standard errors beyond a margin, or a factor that no two boots differ by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log, sqrt
from statistics import fmean

from outrider.core.revisions.evidence import Answers, total
from outrider.core.revisions.intervals import quantile
from outrider.core.revisions.matching import Matched, beside_peers, slope
from outrider.core.words import count

CRASHES = 2
"""One may be the node's fault; two are the revision's."""
FAR = 4.0
"""Standard errors, one-sided: 1 in 30,000. A comparison has a few hundred windows that go together, so a false alarm in
well under one of a hundred comparisons."""
DESIGN_EFFECT = 2.0
"""Requests of one moment resemble each other: their shares scatter twice as much, in variance, as independent ones."""
LEAST = 5.0
"""Requests of a kind that are needed to speak of a share."""
ERROR_MARGIN = 0.01
"""Share of requests that may fail beyond those of the stable revision before it is a fault."""
INSANE_MARGIN = 0.05
"""The same for empty, cut and repeating answers. A new draft or image changes none of them; a quantisation may move
where answers end by a little."""
MISSED_MARGIN = 0.05
"""The same for requests that miss an objective, between the means over boots."""
MISSED_LEVEL = 0.005
"""One-sided error of each look at the objectives. Boots differ in pace, and near an objective a few percent of pace are
many requests: beside boots that differ by 14 %, a look at all requests together withdrew one equal candidate of six."""
MISSED_BOOTS = 2
"""Boots of either side before the first such look."""
SHARE_FLOOR = 0.02
"""Shares of boots never count as more alike than this: three may agree by luck."""
MIN_ANSWERS = 300.0
"""Answers of either side for a comparison of lengths: with lengths that scatter by their own mean, the ratio of means
is then off by 8 %, a fifth of what `LENGTHS` allows."""
LENGTHS = 1.5
"""The mean length of answers may change by this factor either way."""
COLLAPSE = 0.6
"""A window at like load under this share of the stable rate is a collapse, as in `outrider.core.verification`."""
COLLAPSE_WINDOWS = 3
"""Windows running that settle it."""


OBJECTIVES = (("TPOT", "tpot_within", "tpot_of"), ("TTFT", "ttft_within", "ttft_of"))
"""Each with the fields of `Answers` that count it."""
MIN_REQUESTS = 100.0
"""Of a boot, to tell its share: 5 points of error at most."""


def faults(crashes: int, own: Sequence[Answers], stable: Sequence[Answers], found: Matched) -> tuple[str, ...]:
    """What is wrong with the candidate, a sentence each; empty if nothing is. Answers are by boot."""
    all_own, all_stable = total(own), total(stable)
    return (
        *_crashes(crashes),
        *_shares(all_own, all_stable),
        *_missed(own, stable),
        *_lengths(all_own, all_stable),
        *_collapse(found),
    )


def _crashes(crashes: int) -> Iterator[str]:
    if crashes >= CRASHES:
        yield f"the candidate crashed {crashes} times; {CRASHES} are too many"


def _shares(own: Answers, stable: Answers) -> Iterator[str]:
    kinds = (
        ("requests failed", own.errors, stable.errors, ERROR_MARGIN),
        ("answers are empty", own.empty, stable.empty, INSANE_MARGIN),
        ("answers are cut at their limit", own.cut, stable.cut, INSANE_MARGIN),
        ("answers repeat themselves", own.repeating, stable.repeating, INSANE_MARGIN),
    )
    for words, bad, usual, margin in kinds:
        if _beyond(bad, own.ended, usual, stable.ended, margin):
            yield (
                f"{_percent(bad / own.ended)} of the candidate's {words}, and {_percent(usual / stable.ended)} of the"
                f" stable ones; more than {_percent(margin)} beyond is a fault"
            )


def _missed(own_boots: Sequence[Answers], stable_boots: Sequence[Answers]) -> Iterator[str]:
    for words, within, of in OBJECTIVES:
        own, stable = (_shares_by_boot(boots, within, of) for boots in (own_boots, stable_boots))
        if min(len(own), len(stable)) < MISSED_BOOTS:
            continue
        dof = len(own) + len(stable) - 2
        scatter = sqrt((_squares(own) + _squares(stable)) / dof)
        error = max(SHARE_FLOOR, scatter) * sqrt(1.0 / len(own) + 1.0 / len(stable))
        if fmean(stable) - fmean(own) > MISSED_MARGIN + quantile(dof, 1.0 - MISSED_LEVEL) * error:
            yield (
                f"{_percent(fmean(own))} of the candidate's requests meet the {words} objective, and"
                f" {_percent(fmean(stable))} of the stable ones, on average over boots"
            )


def _shares_by_boot(boots: Sequence[Answers], within: str, of: str) -> list[float]:
    """Of requests within an objective, of each boot that has enough to tell."""
    return [getattr(one, within) / getattr(one, of) for one in boots if getattr(one, of) >= MIN_REQUESTS]


def _squares(shares: Sequence[float]) -> float:
    middle = fmean(shares)
    return sum((one - middle) ** 2 for one in shares)


def _beyond(bad: float, of: float, usual: float, stable_of: float, margin: float) -> bool:
    """Whether a share lies above the stable one by more than the margin and its errors (Agresti's added counts, so that
    a share of 0 has an error too)."""
    if bad < LEAST or stable_of <= 0.0:
        return False
    own, other = (bad + 1.0) / (of + 2.0), (usual + 1.0) / (stable_of + 2.0)
    error = sqrt(DESIGN_EFFECT * (own * (1.0 - own) / (of + 2.0) + other * (1.0 - other) / (stable_of + 2.0)))
    return bad / of - usual / stable_of > margin + FAR * error


def _lengths(own: Answers, stable: Answers) -> Iterator[str]:
    if min(own.ended, stable.ended) < MIN_ANSWERS or stable.tokens <= 0.0:
        return
    mine, usual = own.tokens / own.ended, stable.tokens / stable.ended
    if not 1.0 / LENGTHS <= mine / usual <= LENGTHS:
        yield f"the candidate's answers have {mine:.0f} tokens on average, the stable ones {usual:.0f}"


def _collapse(found: Matched) -> Iterator[str]:
    # Less load is like load too, and a slow boot near its limit has a larger batch: the slope is taken out.
    levels = found.grid.rate - slope(found.grid) * found.grid.batch
    for one in found.heard:
        own, peers = beside_peers(levels, one)
        low = own - peers < log(COLLAPSE)
        if any(low[at : at + COLLAPSE_WINDOWS].all() for at in range(len(low) - COLLAPSE_WINDOWS + 1)):
            yield (
                f"in {count(COLLAPSE_WINDOWS, 'window')} running a request got less than {_percent(COLLAPSE)} of the"
                " stable tokens a second at like load"
            )
            return


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"
