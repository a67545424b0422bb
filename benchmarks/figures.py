"""The few numbers of a benchmark and what is asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """A median over the seeds and how far single seeds lie apart."""

    value: float | None
    lowest: float | None = None
    highest: float | None = None
    where: str = ""
    """The case that the figure comes from, where it is the worst of several."""

    @classmethod
    def of(cls, values: Sequence[float], where: str = "") -> Figure:
        """Of one value a seed."""
        return cls(median(values), min(values), max(values), where) if values else cls(None)


@dataclass(frozen=True, slots=True)
class Target:
    """What the issue of a benchmark asks of a figure."""

    bound: float
    at_least: bool

    def __str__(self) -> str:
        return f"at {'least' if self.at_least else 'most'} {self.bound:g}"

    def met(self, value: float) -> bool:
        """Whether a figure is good enough."""
        return value >= self.bound if self.at_least else value <= self.bound


def told(figures: Mapping[str, Figure]) -> str:
    """All of them, one a line."""
    return "\n".join(
        f"{key:<36} {'not measured' if figure.value is None else f'{figure.value:.4g}':>12}  {figure.where}"
        for key, figure in figures.items()
    )
