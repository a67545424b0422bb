"""One engine under a load, scraped and steered as a fleet of one is; unlike the fleet it knows waiting clients."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from benchmarks.policy.load import Source
from outrider.core.schedule import Schedule
from outrider.replay.policies import Arm
from outrider.simulator.noise import MODEST
from outrider.simulator.profile import Profile
from outrider.simulator.replica import Replica
from outrider.simulator.request import RequestRecord
from outrider.simulator.store import MetricsStore

SCRAPE_S = 15.0
"""The slowest that the operator allows; the reach of issue 5 is stated at it."""
CONTROL_S = 15.0
KEPT_S = 120.0


@dataclass(slots=True)
class Played:
    """What one engine did. Times are seconds."""

    times_s: list[float] = field(default_factory=lambda: [0.0])
    tokens: list[int] = field(default_factory=lambda: [0])
    """Generated up to each of the times."""
    records: list[RequestRecord] = field(default_factory=list)
    schedules: list[tuple[float, Schedule]] = field(default_factory=list)
    """Every schedule with the moment from which it was in force."""
    decisions_s: list[float] = field(default_factory=list)
    """Processor time of each control pass."""

    def rate(self, since_s: float, until_s: float) -> float:
        """Tokens a second between two of the times."""
        first, last = self.times_s.index(since_s), self.times_s.index(until_s)
        return (self.tokens[last] - self.tokens[first]) / (until_s - since_s)

    def tpots_s(self, since_s: float, until_s: float) -> list[float]:
        """TPOT of what was answered between two moments."""
        return [
            record.tpot_s
            for record in self.records
            if since_s < record.finished_s <= until_s and record.tpot_s is not None
        ]


def play(arm: Arm, profile: Profile, source: Source, duration_s: float, seed: int) -> Played:
    """Run an arm under a load."""
    replica = Replica.create(
        arm.settings, profile, "chat-0", "ml", "chat", seed=seed, now_s=0.0, ready_s=0.0, noise=MODEST
    )
    store, played = MetricsStore(retention_s=KEPT_S + SCRAPE_S), Played()
    replica.engine.on_finish = played.records.append
    played.schedules.append((0.0, replica.engine.schedule))
    for count in range(1, int(duration_s / SCRAPE_S) + 1):
        now_s = count * SCRAPE_S
        source.play(replica.engine, now_s)
        replica.admin.expire(now_s)
        store.scrape(replica.exposition, replica.labels, now_s)
        played.times_s.append(now_s)
        played.tokens.append(replica.engine.counters.generation_tokens)
        _control(arm, replica, store, played, now_s)
    return played


def _control(arm: Arm, replica: Replica, store: MetricsStore, played: Played, now_s: float) -> None:
    if arm.controller is None:
        return
    series = store.window(now_s - KEPT_S, now_s)
    began_s = time.thread_time()
    commands = arm.controller.control(now_s, series, 1)
    played.decisions_s.append(time.thread_time() - began_s)
    schedule = commands.schedule or played.schedules[-1][1]
    if schedule != played.schedules[-1][1]:
        played.schedules.append((now_s, schedule))
    reply = replica.admin.put({"generation": len(played.schedules), "schedule": schedule.as_lists()}, now_s)
    if reply.status != 200:
        raise ValueError(f"the engine refused {schedule}: {reply.body}")
