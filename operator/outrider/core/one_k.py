"""The one K of engines that can only be told by a restart: when another is worth one.

    learn ─▶ judge the last change ─▶ the K that yields most at the load of late ─▶ is it worth a restart, and now?

A roll-out gives every replica a new engine. Beside the old one the new one holds a GPU for as long as it starts, or
the replica's place is empty that long: replicas x start-up time are lost either way, and n replicas gain n times as
much. So the gain must earn back the start of one engine, whatever their number:

    gain · EARN_S >= start_s

on top of what the prediction may be wrong by, for a load that lasts, and few times a day. A change is judged by what
was measured after it, and goes back if it lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from outrider.core.objective import Yield
from outrider.core.observation import Observation
from outrider.core.one_k_choice import MIN_GAIN, better, nothing_better
from outrider.core.one_k_evidence import gain, learn, predict, usual_batch
from outrider.core.one_k_state import BAR_S, MAX_BAR_S, Barred, OneK, Sight, on_time
from outrider.core.series import Missing
from outrider.core.words import count

MOST_A_DAY = 4
MOST_A_DAY_MISSED = 8
"""The same while an objective is missed."""
ASK_SHARE, ASK_SHARE_MISSED = 1 / 3, 1 / 10
"""Share of the settling time for which another K must be wished for before it is given."""
DWELL_SHARE_MISSED = 1 / 3
"""Share of the settling time between two changes while an objective is missed."""
JUDGE_SHARE, JUDGE_SHARE_MISSED = 1 / 2, 1 / 6
"""Share of the settling time after which a change is judged."""
LIKE_BATCH, LIKE_ACCEPTANCE = 2.0, 0.1
"""A change is judged within this factor and this difference of what it was made for: what came of another load is not
its fault, and is answered as any load is."""
HALF_LIFE_SHARE = 1 / 2
"""Half life of load and acceptance, as a share of the settling time."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to remember, the K to roll out if there is one, and why."""

    state: OneK
    reason: str
    rolls: int | None = None

    @property
    def today(self) -> int:
        """Changes in the last day."""
        return len(self.state.moves)


def decide(known: OneK, sight: Sight, increment: Observation | Missing) -> Decision:
    """One look. ``increment`` is what happened since the last one."""
    known = on_time(known, sight.now_s)
    if sight.stuck and known.before is not None:
        return _back(known, sight, f"engines with K {sight.present} do not come up: {sight.stuck}")
    known = replace(known, rolling=known.rolling and not sight.settled)
    if not sight.settled:
        return Decision(known, f"engines with K {sight.present} are being started")
    if isinstance(increment, Missing):
        return Decision(known, f"no decision without metrics: {increment}")
    evidence = learn(known.evidence, increment, sight.present, HALF_LIFE_SHARE * sight.settle_s)
    known = replace(known, evidence=evidence)
    values = sorted({*sight.values, sight.present, known.before or sight.present})
    predicted = predict(evidence, values, sight.max_batch_size, sight.capture_size)
    if predicted is None:
        return Decision(known, "no time per output token was measured yet")
    if known.before is not None:
        if evidence.watched_s < (JUDGE_SHARE_MISSED if sight.missed else JUDGE_SHARE) * sight.settle_s:
            return Decision(known, f"K {known.before}→{sight.present} is still being judged")
        known, lost = _judged(known, sight, predicted)
        if lost:
            return _back(known, sight, lost)
    return _wished(known, sight, predicted)


def _judged(known: OneK, sight: Sight, predicted: Yield) -> tuple[OneK, str]:
    """The last change by what was measured since; the second value says why it goes back, empty if it stays."""
    assert known.before is not None
    if not _like(known):
        return replace(known, before=None), ""
    found, _ = gain(known.evidence, predicted, known.before, sight.present)
    known = replace(known, delivered=found)
    if found < -MIN_GAIN and known.before in sight.values:
        return known, f"K {known.before}→{sight.present} lost {-found:.0%} of token goodput at like load"
    tries = known.tries if sight.present == 0 else 0
    return replace(known, before=None, tries=tries), ""


def _load(known: OneK) -> tuple[float, float]:
    drafted, accepted = known.evidence.counts.at(0)
    return float(usual_batch(known.evidence)), accepted / drafted if drafted > 0 else 0.0


def _like(known: OneK) -> bool:
    """Whether the load is what the last change was made for."""
    if known.chosen_at is None:
        return True
    (batch, share), (batch_then, share_then) = _load(known), known.chosen_at
    near = max(batch, batch_then) <= LIKE_BATCH * min(batch, batch_then)
    return near and abs(share - share_then) <= LIKE_ACCEPTANCE


def _wished(known: OneK, sight: Sight, predicted: Yield) -> Decision:
    """The K that yields most, if it is worth a restart, and once it has been for long enough."""
    best = better(known, sight, predicted)
    if best is None:
        stands = "" if known.delivered is None else f"the last change gave {known.delivered:+.0%}; "
        return Decision(replace(known, wish=None), f"{stands}{nothing_better(known, sight, predicted)}")
    k = best.num_speculative_tokens
    since_s = sight.now_s if known.wish is None or known.wish[0] != k else known.wish[1]
    known = replace(known, wish=(k, since_s))
    move = f"K {sight.present}→{k}: {best.why}"
    wait = next(_waits(known, sight, since_s), None)
    if wait is not None:
        return Decision(known, f"{move}; {wait}")
    if not sight.acting:
        return Decision(known, f"would roll {move}")
    return _roll(known, sight, k, move, tries=known.tries + best.tries)


def _waits(known: OneK, sight: Sight, since_s: float) -> Iterator[str]:
    """What a change still waits for, in the order in which it is told."""
    ask_s = (ASK_SHARE_MISSED if sight.missed else ASK_SHARE) * sight.settle_s
    dwell_s = (DWELL_SHARE_MISSED if sight.missed else 1.0) * sight.settle_s
    most = MOST_A_DAY_MISSED if sight.missed else MOST_A_DAY
    if sight.now_s < since_s + ask_s:
        yield f"it is given if that holds for {since_s + ask_s - sight.now_s:.0f} s more"
    if known.moves and sight.now_s < known.moves[0] + dwell_s:
        yield f"K changed a while ago; wait {known.moves[0] + dwell_s - sight.now_s:.0f} s more"
    if len(known.moves) >= most:
        yield f"K changed {count(len(known.moves), 'time')} within a day, and {most} are the most"
    if sight.blocked:
        yield sight.blocked


def _roll(known: OneK, sight: Sight, k: int, why: str, *, tries: int) -> Decision:
    fresh = replace(known.evidence, watched_s=0.0, batch=None, blind_s=0.0)
    state = replace(
        known,
        chosen=None if k == sight.own else k,
        rolling=True,
        before=sight.present,
        chosen_at=_load(known),
        delivered=None,
        moves=(sight.now_s, *known.moves),
        wish=None,
        tries=tries,
        evidence=fresh,
    )
    return Decision(state, why, rolls=k)


def _back(known: OneK, sight: Sight, why: str) -> Decision:
    """To the K before, at once and whatever the number of changes; the present one is barred."""
    assert known.before is not None
    same = [bar for bar in known.bars if bar.num_speculative_tokens == sight.present]
    times = 1 + max((bar.times for bar in same), default=0)
    bar = Barred(sight.present, sight.now_s + min(MAX_BAR_S, BAR_S * 2.0 ** (times - 1)), times)
    others = tuple(one for one in known.bars if one not in same)
    if not sight.acting:
        return Decision(known, f"would roll back: {why}")
    rolled = _roll(known, sight, known.before, f"rolled back to K {known.before}: {why}", tries=known.tries)
    return replace(rolled, state=replace(rolled.state, before=None, bars=(*others, bar)))
