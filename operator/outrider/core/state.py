"""What the controller is told once, and what it remembers from one pass to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.core.acceptance import AcceptanceState
from outrider.core.bursts import Bursts
from outrider.core.capacity import DEFAULT_REQUESTS_PER_REPLICA
from outrider.core.decision import Change
from outrider.core.first_token import FirstToken
from outrider.core.latency import LatencyModel, LatencyState
from outrider.core.schedule import Schedule
from outrider.core.step_cells import Cell, CellKey

HISTORY = 5
"""Changes kept for status and memory."""
DEFAULT_LEAD_S = 120.0
"""The autoscaler's poll, and a start from warm caches, where no start was measured."""
START_CREDIT_S = 4.0
"""What a new service may spend on probes at once, in seconds of its goodput: four or five of them, enough to find its K
in the first minutes."""


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """One service's bounds and objectives, resolved, in seconds and fractions."""

    mode: str
    """``Adaptive``, ``Observe``, ``Fixed`` or ``Off``."""
    policy: str
    """``Goodput`` or ``AcceptanceThreshold``."""
    values: tuple[int, ...]
    """The K that the engines were started with, ascending; ``(0,)`` without speculation."""
    min_speculative_tokens: int
    max_batch_size: int
    """The engine's ``max_num_seqs``."""
    capture_size: int
    """Largest captured CUDA graph, tokens."""
    initial: Schedule
    """What an engine runs before it was told anything, and what ``Fixed`` keeps."""
    tpot_objective_s: float | None
    percentile: float
    """Share of requests that must meet the objectives, such as 0.95."""
    period_s: float
    frozen: bool = False
    """Keep everything as it is, and go on observing and explaining."""
    ttft_objective_s: float | None = None
    lead_s: float = DEFAULT_LEAD_S
    """From a load that needs another replica to that replica's first answer."""

    @property
    def allowed(self) -> tuple[int, ...]:
        """The K within the user's bounds."""
        return tuple(k for k in self.values if k >= self.min_speculative_tokens)


@dataclass(frozen=True, slots=True)
class Trial:
    """A change on probation: what was, when it ended, and what the service yielded and bore then."""

    before: Schedule
    at_s: float
    rate: float
    """Tokens a second of one running request, measured before the change."""
    tpot_s: float
    """Predicted TPOT at that time under the old schedule; with ``rate`` it carries the old arm to another
    acceptance."""
    batch: float
    """Requests in a step."""
    prompt_tps: float
    """Prompt tokens a second and engine: prefill slows decoding, whatever K is."""
    good: int = 0
    bad: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """A short look at K that nobody has seen lately: the schedule to return to, and since when."""

    before: Schedule
    at_s: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A K that proved worse than predicted at some load, and may not come back there for a while."""

    num_speculative_tokens: int
    first: int
    last: int
    """Batch sizes, inclusive."""
    until_s: float
    times: int
    """How often it was barred: each time it stays away twice as long."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A model and what it was fitted to."""

    cells: Mapping[CellKey, Cell]
    capture_size: int
    model: LatencyModel | None
    """None where too little was measured."""


@dataclass(frozen=True, slots=True)
class ControllerState:
    """All that survives from pass to pass, and through the memory document from process to process."""

    schedule: Schedule
    generation: int = 1
    acceptance: AcceptanceState = field(default_factory=AcceptanceState)
    latency: LatencyState = field(default_factory=LatencyState)
    bursts: Bursts = field(default_factory=Bursts)
    first_token: FirstToken = field(default_factory=FirstToken)
    learned_until_s: float | None = None
    """End of the last window that the estimates contain."""
    drafts_seen_s: float | None = None
    """When drafts were last seen in number: without drafts acceptance is unknown, not zero."""
    jumped_s: float | None = None
    """When acceptance last changed abruptly."""
    schedule_changed_s: float | None = None
    trial: Trial | None = None
    probe: Probe | None = None
    """Set while the present schedule is a probe."""
    probed_s: float | None = None
    """When the last probe began."""
    credit_s: float = START_CREDIT_S
    """Goodput that probes may still cost, in seconds of it."""
    bars: tuple[Bar, ...] = ()
    target: int = DEFAULT_REQUESTS_PER_REPLICA
    """Requests in flight per replica, as KEDA's trigger has it."""
    target_changed_s: float | None = None
    target_fell_s: float | None = None
    history: tuple[Change, ...] = ()
    """Newest first, at most `HISTORY`."""
    fitted: Fitted | None = field(default=None, compare=False, repr=False)
    """Follows from `latency` and is not remembered: the next pass compares its steps with the model of this one, and a
    pass without news needs no other."""


def initial_state(config: ControllerConfig) -> ControllerState:
    """Where a service begins that nothing is remembered of."""
    return ControllerState(schedule=config.initial)
