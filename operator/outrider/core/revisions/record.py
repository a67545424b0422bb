"""The evidence of a comparison as it grows, window by window, from raw samples.

Windows end at whole multiples of their length, the same moments for all processes, and each is read once all of its
samples are in. What a window holds depends on samples alone: whoever lost the record, as an operator that was started
again, reads the same one anew from the store, a few windows at a time. So it is kept in memory only. It is bounded:
windows without a rate are not kept, how requests ended is kept as a sum, and so many processes of a track at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from outrider.core.observation import Observation, observe_windows
from outrider.core.revisions.answering import answers_of
from outrider.core.revisions.evidence import NOTHING, UNDRAFTED, Answers, Boot, Evidence, Window, window_of
from outrider.core.revisions.processes import Process, processes
from outrider.core.series import Missing, Series
from outrider.core.survival import Counts

AT_ONCE = 40
"""Windows read at a time. Ten minutes of one pod are some 30,000 samples; a comparison that has been under way for two
hours is read anew within a dozen passes."""
WARM_UP = 2
"""First windows of a process in which it generates tokens and is not compared: its batches are small, its caches empty,
and kernels that were not compiled before are now."""
MOST = 16
"""Processes kept of a track. With so many stable ones the scatter of their mean is a quarter of one's, less than what
four boots of a candidate leave."""
GONE = 4
"""Windows without a sample after which a process counts as gone when there are too many."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """Seconds; None where the service has none."""

    tpot_s: float | None = None
    ttft_s: float | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """One process as far as it was heard."""

    name: str
    pod: str
    candidate: bool
    windows: tuple[Window, ...] = ()
    """Those that tell a rate, without how requests ended and what was accepted."""
    busy: int = 0
    """Windows in which it generated tokens."""
    answers: Answers = NOTHING
    acceptance: Counts = UNDRAFTED
    until_s: float = 0.0
    """End of the last window with samples of it."""
    last: bool = True
    """No later process of its pod is known."""

    def boot(self, ended: bool, until_s: float) -> Boot:
        """As the analysis takes it: the sums stand in a window of their own, which tells no rate."""
        rest = Window(until_s, 0.0, 0.0, 0.0, answers=self.answers, acceptance=self.acceptance)
        return Boot(self.name, (*self.windows, rest), ended)


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of the comparison of one candidate."""

    revision: str
    """Of the candidate."""
    since_s: float
    """When it first took traffic."""
    window_s: float
    until_s: float
    """End of the last window that was read; of none, the moment before the first."""
    heard: Mapping[str, Heard] = field(default_factory=dict)
    """By name, in order of their first samples."""

    def next_edges(self, known_until_s: float) -> tuple[float, ...]:
        """Edges of the windows to read next, if samples are complete up to this time; fewer than two if there is
        none."""
        edges = (self.until_s + number * self.window_s for number in range(AT_ONCE + 1))
        return tuple(edge for edge in edges if edge <= known_until_s)

    def read(self, series: Iterable[Series], edges_s: Sequence[float], objectives: Objectives) -> Record:
        """With the windows between these edges, from the samples of both tracks."""
        heard, latest = dict(self.heard), dict[str, str]()
        for one in processes(series):
            if one.candidate and one.revision not in ("", self.revision):
                continue  # a candidate before this one, on its way out
            before = heard.get(one.name) or Heard(one.name, one.pod, one.candidate)
            heard[one.name] = _with(before, one, edges_s, objectives)
            latest[one.pod] = one.name
        for name, known in list(heard.items()):
            if latest.get(known.pod, name) != name:
                heard[name] = replace(known, last=False)
        return replace(self, until_s=edges_s[-1], heard=_bounded(heard, edges_s[-1] - GONE * self.window_s))

    def evidence(self, living: Collection[str], crashes: int) -> Evidence:
        """For the analysis; ``living`` has UIDs and names of the pods that go on."""
        boots: dict[bool, list[Boot]] = {True: [], False: []}
        for one in self.heard.values():
            ended = not (one.last and one.pod in living)
            boots[one.candidate].append(one.boot(ended, self.until_s))
        return Evidence(self.since_s, tuple(boots[False]), tuple(boots[True]), crashes)


def begun(revision: str, since_s: float, window_s: float) -> Record:
    """An empty one, of a candidate that first took traffic at ``since_s``."""
    return Record(revision, since_s, window_s, ceil(since_s / window_s) * window_s)


def _with(heard: Heard, process: Process, edges_s: Sequence[float], objectives: Objectives) -> Heard:
    windows, busy, until_s = list(heard.windows), heard.busy, heard.until_s
    answers, acceptance = heard.answers, heard.acceptance
    for observation in observe_windows(process.series, edges_s):
        if isinstance(observation, Missing):
            continue
        until_s = observation.until_s
        answers = _plus(answers, answers_of(observation, objectives.tpot_s, objectives.ttft_s))
        if observation.drafted_per_pos:
            acceptance = acceptance.plus(Counts(observation.drafted_per_pos, observation.accepted_per_pos))
        busy += observation.generation_tokens > 0.0
        window = _rate(observation) if busy > WARM_UP else None
        if window is not None:
            windows.append(window)
    return replace(heard, windows=tuple(windows), busy=busy, answers=answers, acceptance=acceptance, until_s=until_s)


def _plus(one: Answers, other: Answers) -> Answers:
    return one if other is NOTHING else one.plus(other)


def _rate(observation: Observation) -> Window | None:
    window = window_of(observation)
    if isinstance(window, Missing) or not window.tells:
        return None
    return replace(window, acceptance=UNDRAFTED)


def _bounded(heard: Mapping[str, Heard], before_s: float) -> Mapping[str, Heard]:
    """At most `MOST` of a track: those go first that were not heard after ``before_s``, then those with the fewest
    windows."""
    kept = dict(heard)
    for candidate in (True, False):
        own = [name for name, one in heard.items() if one.candidate is candidate]
        order = sorted(own, key=lambda name: (heard[name].until_s > before_s, len(heard[name].windows)))
        for name in order[: max(0, len(own) - MOST)]:
            del kept[name]
    return kept
