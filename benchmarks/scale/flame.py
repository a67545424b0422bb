"""Sampled stacks of the operator as shares and as a flame graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

WIDTH, ROW, MARGIN = 1200, 16, 4
LEAST = 0.004
"""Boxes narrower than this share of the whole are left out."""
LETTER = 6.2
"""Mean width of a letter at the size used, pixels."""
PARTS: Mapping[str, tuple[str, ...]] = {
    "waiting for and reading answers of Prometheus": ("adapters/bounded:",),
    "parsing them as JSON": ("json/__init__:loads", "requests/models:Response.json"),
    "making series of them": ("adapters/prometheus:rows", "adapters/prometheus:by_service"),
    "condensing series to observations": ("core/observation:observe_since",),
    "the control law": ("core/controller:control",),
    "telling metrics": ("prometheus_client/exposition:", "reconcile/measures:decided", "outrider/telemetry:"),
    "the rest of control passes": ("reconcile/control:",),
    "objects passes": ("reconcile/objects:",),
    "watches": ("_cogs/clients/watching:", "outrider/handlers:"),
}
"""What the operator's time goes to, each with the functions that tell; the first that a stack has counts."""


def read(text: str) -> Counter[tuple[str, ...]]:
    """Stacks and their counts from the folded form."""
    found = Counter[tuple[str, ...]]()
    for line in text.splitlines():
        stack, _, number = line.rpartition(" ")
        found[tuple(stack.split(";"))] += int(number)
    return found


def shares(stacks: Counter[tuple[str, ...]]) -> dict[str, float]:
    """Share of each of `PARTS` in all samples, and of what is none of them."""
    counts = Counter(dict.fromkeys((*PARTS, "other"), 0))
    for stack, number in stacks.items():
        counts[_part(stack)] += number
    total = max(1, counts.total())
    return {part: number / total for part, number in counts.items()}


def _part(stack: Sequence[str]) -> str:
    for part, functions in PARTS.items():
        if any(frame.startswith(functions) for frame in stack):
            return part
    return "other"


@dataclass(slots=True)
class Node:
    """A call and the calls under it."""

    count: int = 0
    under: dict[str, Node] = field(default_factory=dict)


def tree(stacks: Counter[tuple[str, ...]], begin: str = "asyncio/events:Handle._run") -> Node:
    """All stacks from their roots; frames before the event loop's call say nothing and are left out."""
    root = Node()
    for stack, number in stacks.items():
        first = stack.index(begin) + 1 if begin in stack else 0
        node = root
        node.count += number
        for frame in stack[first:]:
            node = node.under.setdefault(frame, Node())
            node.count += number
    return root


def svg(stacks: Counter[tuple[str, ...]]) -> str:
    """The flame graph, widest calls first; the frame's name and share are in its title."""
    root = tree(stacks)
    boxes = list(_boxes(root, 0.0, 0, max(1, root.count)))
    height = ROW * (2 + max((depth for *_, depth in boxes), default=0)) + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
        ' font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for name, left, share, depth in boxes:
        x, width, y = left * WIDTH, share * WIDTH, MARGIN + depth * ROW
        shown = name if len(name) * LETTER < width else name.rpartition(":")[2]
        colour = "#f2a65a" if name.split("/")[0] in OURS else "#c9d3de"
        lines.append(
            f'<g><title>{escape(name)} {100 * share:.1f} %</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}"'
            f' height="{ROW - 1}" fill="{colour}"/>'
            + (f'<text x="{x + 2:.1f}" y="{y + 11}">{escape(shown)}</text>' if len(shown) * LETTER < width else "")
            + "</g>"
        )
    return "\n".join([*lines, "</svg>", ""])


OURS = ("adapters", "api", "core", "engine", "manifests", "outrider", "reconcile")
"""Packages of the operator, which the graph shows in colour."""


def _boxes(node: Node, left: float, depth: int, total: int) -> Iterator[tuple[str, float, float, int]]:
    """Name, left edge, width and depth; both as shares of the whole."""
    for name, under in sorted(node.under.items(), key=lambda item: -item[1].count):
        share = under.count / total
        if share < LEAST:
            break
        yield name, left, share, depth
        yield from _boxes(under, left, depth + 1, total)
        left += share
