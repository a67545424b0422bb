"""GPU-hours that speculation saved: the same tokens at the same batch sizes, without a drafter.

Pure. Steps are counted by the runtime plugin by batch bucket and K. An engine without a drafter gives each running
request one token a step, so the tokens of a step with K would have taken E(K) steps of it. Steps with prefill are left
out: prompts cost the same either way. What is saved is engine time; it becomes money only where replicas were given up
for it, so an answer is an estimate and says on what it rests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from outrider.core.steps import StepCell

MIN_STEPS = 20.0
"""As in `outrider.core.latency`: a mean over fewer steps is mostly noise."""
ASSUMPTION = (
    "The same tokens at the same batch sizes on engines without a drafter, which give a request one token a step. {}"
    " Steps with prefill are left out on both sides. What is saved is engine time: it saves money where replicas were"
    " given up for it."
)
BY_MODEL = "A step without a drafter takes what the operator's law of step times, fitted to this service, says."
BY_STEPS = (
    "A step without a drafter is taken to be as long as the steps with K = 0 at a like batch, 5 to 10 % too long as"
    " measured on an H100, so that the saving is flattered by as much."
)


@dataclass(frozen=True, slots=True)
class Saving:
    """What was found; negative where speculation cost more than it gave."""

    gpu_hours: float
    busy_gpu_hours: float
    """What the same steps took with speculation."""
    covered: float
    """Share of the steps that could be compared, 0 to 1."""
    assumption: str

    @property
    def share(self) -> float:
        """Of the time without a drafter, 0 to 1."""
        return self.gpu_hours / (self.gpu_hours + self.busy_gpu_hours)


def saving(
    rows: Sequence[StepCell],
    tokens_per_step: float,
    gpus_per_engine: float,
    plain_step_s: Callable[[float], float] | None,
) -> Saving | None:
    """Engine time saved, in GPU-hours; None where nothing can be compared.

    Args:
        rows: decode-only steps by batch bucket and K, all engines together.
        tokens_per_step: mean tokens of a request in a step with drafts, as measured in the period.
        gpus_per_engine: GPUs that one engine occupies.
        plain_step_s: seconds of a step without a drafter by batch size; None to go by the steps with K = 0.
    """
    enough = [row for row in rows if row.steps >= MIN_STEPS]
    measured = {row.batch_bucket: row.step_time_s for row in enough if row.num_speculative_tokens == 0}
    saved_s, busy_s, covered = 0.0, 0.0, 0.0
    for row in enough:
        plain_s = measured.get(row.batch_bucket) if plain_step_s is None else plain_step_s(row.mean_batch)
        if plain_s is None:
            continue
        length = tokens_per_step if row.num_speculative_tokens else 1.0
        saved_s += row.steps * length * plain_s - row.seconds
        busy_s += row.seconds
        covered += row.steps
    total = sum(row.steps for row in rows)
    if not covered or saved_s + busy_s <= 0:
        return None
    hours = gpus_per_engine / 3600
    why = ASSUMPTION.format(BY_STEPS if plain_step_s is None else BY_MODEL)
    return Saving(saved_s * hours, busy_s * hours, covered / total, why)


def by_k(rows: Sequence[StepCell]) -> Mapping[int, tuple[float, float, float]]:
    """By K: steps, seconds and requests."""
    found: dict[int, tuple[float, float, float]] = {}
    for row in sorted(rows, key=lambda one: one.num_speculative_tokens):
        steps, seconds, requests = found.get(row.num_speculative_tokens, (0.0, 0.0, 0.0))
        found[row.num_speculative_tokens] = (steps + row.steps, seconds + row.seconds, requests + row.requests)
    return found
