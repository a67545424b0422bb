"""Short ways to say what engines exported, for tests of the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from outrider.core import latency, learning
from outrider.core.controller import Outcome, control
from outrider.core.guards import Facts
from outrider.core.objective import Yield
from outrider.core.observation import EngineWindow, Histogram, Observation, StepCell
from outrider.core.schedule import Schedule, parse_text
from outrider.core.series import Missing, Series
from outrider.core.state import ControllerConfig, ControllerState, initial_state

VALUES = (0, 1, 2, 3, 5)
GONE = Missing("PrometheusUnreachable", "Prometheus does not answer")


def series(
    name: str, samples: Sequence[tuple[float, float]], pod: str = "chat-a", engine: str = "0", **labels: str
) -> Series:
    """One series of one engine."""
    return Series(name, {"pod": pod, "engine": engine, **labels}, tuple(samples))


def counters(values: Mapping[str, tuple[float, float]], pod: str = "chat-a", engine: str = "0") -> list[Series]:
    """Counters with a value at 0 s and one at 10 s."""
    return [series(name, [(0.0, first), (10.0, last)], pod, engine) for name, (first, last) in values.items()]


def config(**changes: object) -> ControllerConfig:
    """An adaptive service with K in {0, 1, 2, 3, 5} and a control period of 15 s."""
    fields: dict[str, object] = {
        "mode": "Adaptive",
        "policy": "Goodput",
        "values": VALUES,
        "min_speculative_tokens": 0,
        "max_batch_size": 256,
        "capture_size": 504,
        "initial": parse_text("1-256:3"),
        "tpot_objective_s": 0.012,
        "percentile": 0.95,
        "period_s": 15.0,
    }
    return ControllerConfig(**{**fields, **changes})  # type: ignore[arg-type]


def observation(
    *,
    since: float = 0.0,
    until: float = 15.0,
    batch: float = 32.0,
    waiting: float = 0.0,
    k: int = 3,
    survival: Sequence[float] = (0.75, 0.56, 0.42, 0.32, 0.24),
    step_s: float = 0.011,
    steps: float = 1000.0,
    tokens_factor: float = 1.0,
    tpot_s: float | None = None,
    kv_cache_usage: float | None = 0.1,
) -> Observation:
    """One engine that ran ``steps`` decode steps of ``batch`` requests with this K, each draft accepted as ``survival``
    says."""
    drafts = steps * batch if k else 0.0
    accepted = tuple(drafts * share for share in survival[:k])
    length = 1.0 + sum(survival[:k])
    finished = steps * batch / 200.0
    measured = tpot_s if tpot_s is not None else step_s / length
    bucket = 1 << max(0, round(batch) - 1).bit_length()
    return Observation(
        since_s=since,
        until_s=until,
        engines=(EngineWindow("chat-a", "0", batch, waiting, kv_cache_usage, 375_000.0, 1),),
        num_drafts=drafts,
        drafted_per_pos=(drafts,) * k,
        accepted_per_pos=accepted,
        generation_tokens=steps * batch * length * tokens_factor,
        cells=(StepCell(bucket, k, False, steps, steps * step_s, steps * batch),),
        tpot=Histogram(
            finished, finished * measured, ((measured * 0.9, 0.0), (measured * 1.1, finished), (float("inf"), finished))
        ),
    )


def yields(
    rows: Mapping[int, Sequence[float]],
    *,
    errors: Mapping[int, float] | None = None,
    length_errors: Mapping[int, float] | None = None,
    measured: tuple[int, int] | None = None,
) -> Yield:
    """A prediction by K, each row TPOT in milliseconds by batch size.

    ``errors`` and ``length_errors`` are relative, by K, and zero where not given; ``measured`` are the first and the
    last batch size with measurements near by, of every K.
    """
    tpot_s = np.array([list(row) for row in rows.values()]) / 1e3
    sizes = np.arange(1, tpot_s.shape[1] + 1)
    first, last = measured or (1, len(sizes))
    return Yield(
        tuple(rows),
        tpot_s,
        time_error=np.array([np.full(len(sizes), (errors or {}).get(k, 0.0)) for k in rows]),
        length_error=np.array([(length_errors or {}).get(k, 0.0) for k in rows]),
        extrapolated=np.tile((sizes < first) | (sizes > last), (len(rows), 1)),
    )


def text(schedule: Schedule) -> str:
    """The schedule as users read it."""
    return str(schedule)


def run(state: ControllerState, window: Observation | Missing, now_s: float = 15.0, **changes: Any) -> Outcome:
    """One pass over one window, with these fields of the configuration."""
    return control(config(**changes), state, window, window, now_s)


def learnt(*, survival: Sequence[float] = (0.75, 0.56, 0.42), **changes: Any) -> ControllerState:
    """A state with evidence for K 3 at batch 32 up to second 0, whose schedule never changed."""
    seen = observation(since=-15.0, until=0.0, survival=survival)
    return replace(run(initial_state(config()), seen, 0.0, mode="Observe").state, **changes)


def predict(state: ControllerState) -> Yield:
    """What a state lets expect of each K."""
    model = latency.fit(state.latency, config().capture_size)
    overhead_s = learning._overhead_s(state, model)
    predicted = learning._predict(config(), state, model, overhead_s)
    assert predicted is not None
    return predicted


def facts(predicted: Yield, schedule: str, *, now_s: float = 1_000.0, batch: float = 32.0, **changes: Any) -> Facts:
    """A pass at this load with this schedule and prediction; ``changes`` are fields of the state, the window or the
    pass."""
    of_pass = {key: changes.pop(key) for key in ("verdict", "shift") if key in changes}
    of_config = {key: changes.pop(key) for key in ("tpot_objective_s", "min_speculative_tokens") if key in changes}
    of_window = {key: changes.pop(key) for key in ("waiting", "tpot_s", "window") if key in changes}
    size = predicted.max_batch_size
    values = tuple(sorted({0, *predicted.values}))
    settings = config(values=values, max_batch_size=size, initial=parse_text(schedule), **of_config)
    window = of_window.pop("window", None) or observation(batch=batch, k=parse_text(schedule).at(batch), **of_window)
    state = replace(learnt(), schedule=parse_text(schedule), **changes)
    return Facts(settings, state, now_s, window, predicted, of_pass.get("verdict"), of_pass.get("shift"))
