"""How durations and acceptance curves are written on a command line, and read.

Every fault is a `ValueError` whose text says what was expected, with an example.
"""

from __future__ import annotations

import re
from itertools import pairwise

from outrider.replay.load import POSITIONS, AcceptanceClass, Shift
from outrider.simulator.workload import KINDS, Curve, geometric

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
WHOLE_TRAFFIC = "all"
"""The class of every request where no classes are named."""


def duration_s(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``15m``, ``1.5h``.

    >>> duration_s("15m")
    900.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration; write for example 90s, 15m or 1h")
    return float(match[1]) * UNITS[match[2]]


def curve(text: str) -> Curve:
    """An acceptance curve: a kind of text, one probability for every draft token, or the curve by position.

    ``chat`` is a curve of `KINDS`. ``0.8`` means that each draft token is accepted with 0.8 once those before it were;
    ``0.8,0.6,0.5`` are the shares of drafts of which at least one, two, three tokens are accepted: they cannot rise.
    """
    if text in KINDS:
        return KINDS[text]
    try:
        values = tuple(float(one) for one in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} is no acceptance; {_CURVE}") from None
    if not all(0.0 <= one <= 1.0 for one in values):
        raise ValueError(f"acceptance {text!r} leaves 0 to 1; {_CURVE}")
    if any(later > earlier for earlier, later in pairwise(values)):
        raise ValueError(
            f"acceptance {text!r} increases; the share of drafts accepted up to a position can only fall with it"
        )
    return geometric(values[0], POSITIONS) if len(values) == 1 else values


def acceptance_class(text: str) -> AcceptanceClass:
    """``[NAME=]CURVE[@PERCENT]``: a class of requests, such as ``code@30`` or ``mail=0.6@30``."""
    rest, _, percent = text.partition("@")
    name, equals, written = rest.rpartition("=")
    if percent and not re.fullmatch(r"\d+(\.\d+)?%?", percent):
        raise ValueError(f"{percent!r} is no share of the requests in percent; write for example code@30")
    share = float(percent.rstrip("%")) / 100 if percent else 1.0
    if not equals:
        name = written if written in KINDS else WHOLE_TRAFFIC
    return AcceptanceClass(name, share, curve(written))


def acceptance_classes(texts: list[str]) -> tuple[AcceptanceClass, ...]:
    """All classes of the traffic; their shares must add up to 100 %, and their names differ."""
    classes = tuple(acceptance_class(text) for text in texts)
    if len(classes) > 1 and WHOLE_TRAFFIC in {one.name for one in classes}:
        raise ValueError("several classes need a name each; write for example chat@60 and mail=0.6@40")
    if len({one.name for one in classes}) < len(classes):
        raise ValueError("two classes have the same name")
    total = sum(one.share for one in classes)
    if abs(total - 1.0) > 1e-6:
        raise ValueError(f"the shares of the classes add up to {100 * total:g} %, not to 100 %")
    return classes


def shift(text: str, classes: tuple[AcceptanceClass, ...]) -> Shift:
    """``TIME:[NAME=]CURVE``: from a moment on, all requests or those of one class have another acceptance."""
    time, colon, rest = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is no shift; write TIME:CURVE, for example 10m:0.4")
    name, equals, written = rest.rpartition("=")
    names = [one.name for one in classes]
    if equals and name not in names:
        raise ValueError(f"there is no class {name!r} to shift; the classes are {', '.join(names)}")
    return Shift(duration_s(time), curve(written), name if equals else None)


_CURVE = f"write one number, such as 0.8, the curve by position, such as 0.8,0.6,0.5, or one of {', '.join(KINDS)}"
