"""The requests of an experiment: a trace at some rate, with the acceptance of each class of traffic over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from pathlib import Path

from outrider.simulator.request import Request
from outrider.simulator.trace_names import TRACES
from outrider.simulator.traces import RecordedTrace, Trace, read_rates, trace
from outrider.simulator.workload import Curve, Mix, fitted, pooled, read_trace, with_mix

POSITIONS = 16
"""The longest draft that a resource may ask for."""


@dataclass(frozen=True, slots=True)
class AcceptanceClass:
    """A part of the traffic that drafts fit equally well."""

    name: str
    share: float
    """Of the requests, 0 to 1."""
    curve: Curve


@dataclass(frozen=True, slots=True)
class Shift:
    """From a moment on, the requests of one class (None: of every class) have another acceptance."""

    at_s: float
    curve: Curve
    class_name: str | None = None


@dataclass(frozen=True)
class Load:
    """What a service is asked, and how well drafts fit it. The same values give the same requests."""

    trace: str
    """A name of `trace_names.TRACES`, or a file."""
    rate_factor: float
    """How many times denser than recorded."""
    duration_s: float
    classes: tuple[AcceptanceClass, ...]
    shifts: tuple[Shift, ...] = ()
    """In the order of time."""
    seed: int = 0

    @cached_property
    def recorded(self) -> Trace:
        """The trace itself; raises `ValueError` where there is none, with what there is instead."""
        return open_trace(self.trace)

    @property
    def laps(self) -> int:
        """How often the trace is begun: it starts again where it is shorter than the experiment."""
        return ceil(self.duration_s / self._lap_s)

    def requests(self, max_model_len: int) -> Iterator[Request]:
        """The requests in the order of their arrival, cut to what the model takes."""
        return with_mix(fitted(self._replayed(), max_model_len), self._mixes, seed=self.seed, kinds=self._kinds)

    def acceptance_at(self, time_s: float) -> Curve:
        """The one curve that the requests arriving at a moment amount to."""
        shares = [mix.shares for mix in self._mixes if mix.from_s <= time_s][-1]
        return pooled(shares, POSITIONS, self._kinds)

    @property
    def _lap_s(self) -> float:
        if not isinstance(self.recorded, RecordedTrace):
            return self.recorded.duration_s
        # The gap between the last arrival and the next lap's first is a mean one.
        gaps = max(1, len(self.recorded.arrivals) - 1)
        return max(self.recorded.duration_s * (gaps + 1) / gaps, 1e-3) / self.rate_factor

    def _replayed(self) -> Iterator[Request]:
        for lap in range(self.laps):
            start_s = lap * self._lap_s
            length_s, seed = min(self._lap_s, self.duration_s - start_s), self.seed + lap
            for one in self.recorded.requests(length_s, rate_factor=self.rate_factor, seed=seed):
                yield replace(one, id=f"{lap}.{one.id}", arrival_s=start_s + one.arrival_s) if lap else one

    @cached_property
    def _stages(self) -> list[tuple[float, dict[str, Curve]]]:
        """Each moment from which curves by class hold."""
        stages = [(0.0, {one.name: one.curve for one in self.classes})]
        for shift in self.shifts:
            moved = {name: shift.curve for name in stages[-1][1] if shift.class_name in (None, name)}
            stages.append((shift.at_s, stages[-1][1] | moved))
        return stages

    @cached_property
    def _mixes(self) -> list[Mix]:
        return [
            Mix(from_s, {_kind(one.name, number): one.share for one in self.classes})
            for number, (from_s, _) in enumerate(self._stages)
        ]

    @cached_property
    def _kinds(self) -> Mapping[str, Curve]:
        return {
            _kind(name, number): curve
            for number, (_, curves) in enumerate(self._stages)
            for name, curve in curves.items()
        }


def open_trace(name: str) -> Trace:
    """A trace of the package by its name, or a file in the form of one of them.

    Raises:
        ValueError: there is no such trace, or the file is none.
    """
    if name in TRACES:
        return trace(name)
    path = Path(name)
    try:
        with path.open(encoding="utf-8") as file:
            by_rate = "rate_rps" in file.readline()
        if by_rate:
            return read_rates(path)
        arrivals = read_trace(path)
    except OSError as error:
        raise ValueError(
            f"{name!r} is neither a trace by name ({', '.join(TRACES)}) nor a file that can be read: {error.strerror}"
        ) from error
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}: not in the form of a trace of the package: {error}") from error
    if not arrivals:
        raise ValueError(f"{name}: the trace holds no request")
    return RecordedTrace(arrivals)


def _kind(name: str, stage: int) -> str:
    return f"{name}, stage {stage}"
