"""The page of costs: what the tiers cost by the hour, and a million output tokens where that was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from outrider.core import measured_profile
from outrider.core.interference import DEFAULT_SPREAD
from outrider.core.law import Arm
from outrider.core.measured_profile import MeasuredProfile
from outrider.core.outlook import BEST, NO_DRAFTER, outlook
from outrider.engine.command_line import speculative_tokens_values
from outrider.manifests.engine_settings import engine_config
from outrider.reference.tiers import PRICES, Tier, read_tiers, usd_per_million

HOURS_A_MONTH = 730
PROMPT_TOKENS, OUTPUT_TOKENS = 500.0, 200.0
"""Mean of a request; those that ``outrider predict`` takes unless told otherwise."""
LOADS_RPS = (5.0, 20.0, 40.0, 60.0, 100.0, 140.0, 200.0)
"""Requests a second of the whole service."""
ACCEPTANCES = (0.4, 0.6, 0.75, 0.85)
"""Of each draft token, given that those before it were accepted."""
ACCEPTANCE_LOAD_RPS = 100.0
BATCHES = (1, 8, 32, 64, 128, 256)
NONE = "—"

INTRODUCTION = f"""\
# Costs

What the tiers in [examples/tiers](../../examples/README.md) cost, and what a million output tokens cost with and
without speculation. GPUs alone, each with its share of the machine that is rented with it: no storage, traffic, control
plane, discounts or people. Prices are assumptions with a date; put your own in, everything below is in proportion.

Figures for tokens are given only where this project measured the tier's model and drafter on its card. For
everything else: measure a profile on your card and run `outrider predict PROFILE --tpot-ms … --total-load …`
([the form of a profile](../../operator/outrider/simulator/data/README.md)); cost is then

    USD per million = USD per hour of all replicas / 3600 / output tokens per second of all replicas × 1,000,000

A month has {HOURS_A_MONTH} hours.
"""


def page() -> str:
    """The page as Markdown, the same text for the same files."""
    found = read_tiers()
    parts = [INTRODUCTION, _prices(found), _bounds(found)]
    for tier in found:
        parts += _measured(tier) if tier.profile is not None else [_unmeasured(tier)]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _prices(found: Sequence[Tier]) -> str:
    rows = [
        (card, f"{price.usd_per_gpu_hour:.2f}", price.offer, price.source)
        for card, price in PRICES.items()
        if any(tier.card == card for tier in found)
    ]
    return _table("## Prices", ("card", "USD per GPU and hour", "offer", "source"), rows)


def _bounds(found: Sequence[Tier]) -> str:
    """What a tier costs idle and full, which needs no measurement."""
    rows = []
    for tier in found:
        hour, settings = tier.usd_per_replica_hour, tier.settings
        bounds = (settings.min_replicas, settings.max_replicas)
        rows.append(
            (
                f"[{tier.name}](../../examples/tiers/{tier.name}.yaml)",
                tier.resource.spec.model.id,
                f"{settings.gpus} × {tier.card}",
                f"{bounds[0]} to {bounds[1]}",
                " to ".join(f"{hour * count:.2f}" for count in bounds),
                " to ".join(f"{hour * count * HOURS_A_MONTH:,.0f}" for count in bounds),
                f"{usd_per_million(hour, 1000.0):.2f}",
            )
        )
    heads = ("tier", "model", "a replica", "replicas", "USD per hour", "USD per month")
    return _table(
        "## From the lowest to the highest number of replicas",
        (*heads, "USD per million tokens if a replica gives 1,000 a second"),
        rows,
    )


def _unmeasured(tier: Tier) -> str:
    model = tier.resource.spec.model.id
    return (
        f"## {tier.name}\n\nNot measured: this project has no profile of {model} on {tier.settings.gpus} × {tier.card},"
        " so it gives no figure for its tokens."
    )


def _measured(tier: Tier) -> Iterator[str]:
    document = _document(tier)
    profile = measured_profile.read(document)
    tpot_s = tier.settings.tpot_s
    if tpot_s is None or tier.settings.percentile != 0.95:
        raise ValueError(f"{tier.name}: costs are worked out for a tpotMilliseconds objective at the 95th percentile")
    yield (
        f"## {tier.name}\n\nMeasured with `{tier.profile}`: {document['source']['hardware']}; vLLM"
        f" {document['source']['versions']['vllm']}, {document['source']['model']['dims']}, drafter:"
        f" {document['source']['model']['drafter']}."
    )
    yield _closed_loop(tier, document)
    yield _by_load(tier, profile, tpot_s)
    yield _by_acceptance(tier, profile, tpot_s)


def _closed_loop(tier: Tier, document: Mapping[str, Any]) -> str:
    """Rates as measured, with all requests decoding in all steps: the best that the card did."""
    hour, rows = tier.usd_per_replica_hour, []
    without = {row["batch"]: row for row in document["no_drafter"] if row["prompt"] == 512}
    for batch in BATCHES:
        base = float(without[batch]["tokens_per_second"])
        best = max(
            (row for row in document["rows"] if row["batch"] == batch and row["speculative_tokens"] in _values(tier)),
            key=lambda row: float(row["tokens_per_second"]),
        )
        rate = float(best["tokens_per_second"])
        costs = [usd_per_million(hour, one) for one in (base, rate)]
        rows.append((str(batch), *_pair(base, costs[0]), str(best["speculative_tokens"]), *_pair(rate, costs[1])))
    text = (
        "### Measured: so many requests decode together, nobody waits\n\nOne replica, prompts of 512 tokens already"
        " computed, 75 % of draft tokens accepted as said below. Single windows: a row may be off by some 10 %. With"
        " the drafter the K with the most tokens a second is shown, of those that this tier's engines have graphs for"
        f" ({', '.join(map(str, _values(tier)))}); to take the best of several windows flatters it a little."
    )
    heads = ("requests", "tokens/s without", "USD per million without", "K", "tokens/s with", "USD per million with")
    return _table(text, heads, rows)


def _pair(rate: float, cost: float) -> tuple[str, str]:
    return f"{rate:,.0f}", f"{cost:.2f}"


def _by_load(tier: Tier, profile: MeasuredProfile, tpot_s: float) -> str:
    base, best = _arms(tier, profile)
    rows = []
    for load in LOADS_RPS:
        counts = [tier.replicas(arm, load) for arm in (base, best)]
        costs = [_cost(tier, count, load) for count in counts]
        rows.append((f"{load:g}", *(text for pair in zip(map(_count, counts), costs, strict=True) for text in pair)))
    settings = tier.settings
    text = (
        f"### Predicted: a load, within {tpot_s * 1e3:g} ms a token for 95 of 100 requests\n\n"
        "From the measured step times by the law that `outrider predict` uses, with prompts of"
        f" {PROMPT_TOKENS:g} tokens, answers of {OUTPUT_TOKENS:g}, a load that all replicas share evenly, and the best"
        f" K at each batch size. Replicas stay within {settings.min_replicas} and {settings.max_replicas} as in the"
        f" file; {NONE} means that so many cannot carry the load. What a load costs is its replicas: speculation saves"
        " money where it needs fewer of them, and only time per token where it does not."
    )
    heads = ("requests/s", "replicas without", "USD per million without", "replicas with", "USD per million with")
    return _table(text, heads, rows)


def _by_acceptance(tier: Tier, profile: MeasuredProfile, tpot_s: float) -> str:
    rows = []
    for share in ACCEPTANCES:
        curve = tuple(share**position for position in range(1, len(profile.acceptance) + 1))
        base, best = _arms(tier, replace(profile, acceptance=curve))
        counts = [tier.replicas(arm, ACCEPTANCE_LOAD_RPS) for arm in (base, best)]
        costs = [_cost(tier, count, ACCEPTANCE_LOAD_RPS) for count in counts]
        capacity = f"{best.rate_within_rps(tpot_s, DEFAULT_SPREAD):.1f}"
        rows.append((f"{share * 100:.0f} %", capacity, _count(counts[1]), costs[1], _count(counts[0]), costs[0]))
    text = (
        f"### How much of that is acceptance, at {ACCEPTANCE_LOAD_RPS:g} requests a second\n\nThe profile's acceptance"
        " is synthetic, 75 % for each draft token whose predecessors were accepted; step times do not depend on it."
        " What your texts and your drafter reach is what `status.tuning.acceptanceRatePercent` shows."
    )
    heads = ("accepted", "requests/s of a replica", "replicas with", "USD per million with")
    return _table(text, (*heads, "replicas without", "USD per million without"), rows)


def _arms(tier: Tier, profile: MeasuredProfile) -> tuple[Arm, Arm]:
    """Without a drafter, and with the best K at each batch size."""
    found = outlook(
        profile,
        _values(tier),
        prompt_tokens=PROMPT_TOKENS,
        output_tokens=OUTPUT_TOKENS,
        max_batch=tier.settings.max_num_seqs,
    )
    by_name = {one.name: one.arm for one in found}
    return by_name[NO_DRAFTER], by_name[BEST]


def _values(tier: Tier) -> tuple[int, ...]:
    return speculative_tokens_values(engine_config(tier.resource, tier.settings))


def _cost(tier: Tier, replicas: int | None, load_rps: float) -> str:
    if replicas is None:
        return NONE
    return f"{usd_per_million(replicas * tier.usd_per_replica_hour, load_rps * OUTPUT_TOKENS):.2f}"


def _count(replicas: int | None) -> str:
    return NONE if replicas is None else str(replicas)


def _document(tier: Tier) -> dict[str, Any]:
    path = files("outrider.simulator") / "data" / f"{tier.profile}.json"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _table(before: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(f"| {' | '.join(row)} |" for row in rows)]
    return before + "\n\n" + "\n".join(lines)
