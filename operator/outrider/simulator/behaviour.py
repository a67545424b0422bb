"""What a simulated engine does otherwise than the measured one, said by the names of its draft and image, or by a test.

A change of a resource that matters in a cluster, another draft or another image, is a change of a name here. So the
names say what is to happen, in words between any other characters:

- of a draft: ``better-15`` or ``worse-15``, per cent of tokens a step;
- of an image: ``slower-15`` or ``faster-15``, per cent of tokens a second; ``error-5``, ``empty-5``, ``cut-5`` and
  ``repeat-5``, per cent of answers that fail, have one token, end by their limit, or since they repeat themselves;
  ``careless-5``, per cent of multiple-choice questions that are answered wrong; ``crash-at-start``;
  ``crash-after-50-requests``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from outrider.simulator.profile import Profile
from outrider.simulator.request import Request, extended

_SHARES = ("error", "empty", "cut", "repeat")
_WORDS = re.compile(
    r"(?<![a-z])(?:(?P<share>better|worse|slower|faster|error|empty|cut|repeat|careless)-(?P<percent>\d{1,3})"
    r"|(?P<start>crash-at-start)|crash-after-(?P<requests>\d+)-requests)(?![a-z0-9])"
)
STATUS, CRASH = 1, "Engine core initialization failed. See root cause above."


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Relative changes, 0.15 for 15 %, and shares of answers, 0 to 1."""

    tokens_a_step: float = 0.0
    """Of the draft, at its ceiling."""
    pace: float = 0.0
    """Of the tokens a second that steps give."""
    error: float = 0.0
    empty: float = 0.0
    cut: float = 0.0
    repeat: float = 0.0
    careless: float = 0.0
    """Of multiple-choice questions."""
    crash_at_start: bool = False
    crash_after_requests: int | None = None
    """Requests that were answered before it crashes."""

    def profile(self, profile: Profile, ceiling: int) -> Profile:
        """What it makes of a card; a paced one is no slower card to those who read its dilation."""
        if self.pace:
            profile = replace(profile.slowed(1.0 / (1.0 + self.pace)), dilation=profile.dilation)
        return replace(profile, acceptance=self._curve(profile.acceptance, ceiling))

    def request(self, request: Request, ceiling: int, rng: Random) -> Request:
        """What it makes of a request: how it is drafted, and how its answer ends."""
        if request.acceptance is not None:
            request = replace(request, acceptance=self._curve(request.acceptance, ceiling))
        drawn = rng.random()
        for name in _SHARES:
            drawn -= getattr(self, name)
            if drawn < 0.0:
                reason = {"error": "error", "empty": "stop", "cut": "length", "repeat": "repetition"}[name]
                tokens = 1 if name in ("error", "empty") else request.output_tokens
                return replace(request, output_tokens=tokens, finish_reason=reason)
        return request

    def _curve(self, curve: Sequence[float], ceiling: int) -> tuple[float, ...]:
        """The acceptance by position at which a step of K = ``ceiling`` gives so many more tokens, as far as there
        are drafts to accept."""
        if not self.tokens_a_step or not ceiling:
            return tuple(curve)
        curve = extended(curve, ceiling)
        drafted = sum(curve)
        wanted = (1.0 + drafted) * (1.0 + self.tokens_a_step) - 1.0
        factor = max(0.0, wanted / drafted) if drafted > 0.0 else 1.0
        return tuple(min(1.0, factor * share) for share in curve)


NORMAL = Behaviour()


def named(*names: str) -> Behaviour:
    """What these names ask for together; the last word of a kind counts."""
    found = NORMAL
    for match in (match for name in names for match in _WORDS.finditer(name.lower())):
        if match["start"]:
            found = replace(found, crash_at_start=True)
        elif match["requests"]:
            found = replace(found, crash_after_requests=int(match["requests"]))
        else:
            kind, share = match["share"], int(match["percent"]) / 100.0
            if kind in (*_SHARES, "careless"):
                ends: dict[str, Any] = {kind: share}
                found = replace(found, **ends)
            elif kind in ("better", "worse"):
                found = replace(found, tokens_a_step=share if kind == "better" else -share)
            else:
                found = replace(found, pace=share if kind == "faster" else -share)
    return found
