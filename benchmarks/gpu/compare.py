"""The measured passes beside the same passes in the simulator, on a profile made of the same card's calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean
from typing import Any

from benchmarks.gpu import calibration, replay
from benchmarks.gpu.engine import rendered
from benchmarks.gpu.rows import Results, Row
from outrider.core.state import ControllerConfig
from outrider.simulator import command_line
from outrider.simulator.profile import Profile
from outrider.simulator.settings import EngineSettings

SEEDS = 3
APART = 0.05
"""Arms that differ by less on the GPU are not ranked."""
FIGURES: Mapping[str, Callable[[Row], float]] = {
    "tokens_per_second": lambda row: float(row["tokens_per_second"]),
    "tpot_mean_ms": lambda row: float(row["tpot"]["mean_ms"]),
    "tpot_p99_ms": lambda row: float(row["tpot"]["p99_ms"]),
    "ttft_mean_ms": lambda row: float(row["ttft"]["mean_ms"]),
    "ttft_p99_ms": lambda row: float(row["ttft"]["p99_ms"]),
}


@dataclass(frozen=True, slots=True)
class Model:
    """The simulator with the card's calibration."""

    settings: EngineSettings
    config: ControllerConfig
    profile: Profile
    front_s: float

    @classmethod
    def of(cls, results: Results) -> Model:
        """With what this calibration and the way vLLM schedules ask for."""
        arguments, environment, config = rendered("Adaptive")
        settings = replace(command_line.parse(arguments, environment), schedules_ahead=True)
        profile = calibration.profile(results, settings.capture_size)
        return cls(settings, config, profile, calibration.front_s(results))

    def plain(self) -> Model:
        """As the simulator is without these two: no step put together ahead, prompts hidden behind decoding."""
        return replace(
            self,
            settings=replace(self.settings, schedules_ahead=False),
            profile=replace(self.profile, prompt_s=0.0, jump_s=0.0, beside_tokens=(), beside_seconds=()),
        )

    def play(self, arm: str, seed: int) -> list[Row]:
        """One pass of an arm."""
        return list(replay.play(arm, self.settings, self.config, self.profile, self.front_s, seed))


@dataclass(frozen=True, slots=True)
class Compared:
    """One arm at one level."""

    arm: str
    level: int
    measured: Sequence[Row]
    """One a round."""
    simulated: Sequence[Row]
    """One a seed."""

    def gpu(self, figure: str) -> float:
        """Mean over rounds."""
        return fmean(map(FIGURES[figure], self.measured))

    def simulator(self, figure: str) -> float:
        """Mean over seeds."""
        return fmean(map(FIGURES[figure], self.simulated))

    def error(self, figure: str) -> float:
        """Simulator over GPU, less 1."""
        return self.simulator(figure) / self.gpu(figure) - 1.0

    def spread(self, figure: str) -> float:
        """Highest over lowest seed, less 1: what acceptance and lengths alone do to a window this short."""
        values = [FIGURES[figure](row) for row in self.simulated]
        return max(values) / min(values) - 1.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """Two arms at a level, by how much the first one yields more tokens a second."""

    level: int
    arms: tuple[str, str]
    gpu: float
    simulator: float

    @property
    def agrees(self) -> bool:
        """Whether the simulator has the same one ahead."""
        return (self.gpu > 0) == (self.simulator > 0)


def compare(boots: Iterable[Results], model: Model, seeds: int = SEEDS) -> list[Compared]:
    """Every arm and level that was measured, in the order of the measurement; arms that the model cannot play are left
    out: it has no engine without a drafter."""
    levels = [row for boot in boots for row in boot.levels if row["arm"] != "none"]
    arms = list(dict.fromkeys(row["arm"] for row in levels))
    played = {arm: [model.play(arm, seed) for seed in range(seeds)] for arm in arms}
    keys = dict.fromkeys((row["arm"], row["level"]) for row in levels)
    return [
        Compared(
            arm, level,
            [row for row in levels if (row["arm"], row["level"]) == (arm, level)],
            [row for one in played[arm] for row in one if row["level"] == level],
        )
        for arm, level in keys
    ]  # fmt: skip


def ranking(compared: Sequence[Compared]) -> list[Ranked]:
    """Pairs of arms that lie apart on the GPU, at each level."""
    found = []
    for one, other in combinations(compared, 2):
        if one.level == other.level:
            gpu, simulator = (_ahead(one, other, where) for where in (Compared.gpu, Compared.simulator))
            if abs(gpu) > APART:
                found.append(Ranked(one.level, (one.arm, other.arm), gpu, simulator))
    return found


def worst(compared: Sequence[Compared], figure: str) -> Compared:
    """Where the simulator errs most."""
    return max(compared, key=lambda one: abs(one.error(figure)))


def decode_ms(row: Row) -> float | None:
    """Mean of the decode-only steps of a level; None where there was none."""
    steps: list[dict[str, Any]] = row["steps"]
    return (
        None
        if not steps
        else float(sum(one["ms"] * one["steps"] for one in steps) / sum(one["steps"] for one in steps))
    )


def _ahead(one: Compared, other: Compared, where: Callable[[Compared, str], float]) -> float:
    return where(one, "tokens_per_second") / where(other, "tokens_per_second") - 1.0
