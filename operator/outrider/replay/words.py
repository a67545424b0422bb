"""How times and shares are written where people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def clock(time_s: float) -> str:
    """Minutes and seconds, with hours where there are any.

    >>> clock(754)
    '12:34'
    """
    minutes, seconds = divmod(round(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"


def milliseconds(time_s: float | None) -> str:
    """Milliseconds with three digits that count; a dash where nothing was measured.

    >>> milliseconds(0.0123)
    '12.3 ms'
    """
    if time_s is None:
        return "–"
    value = 1e3 * time_s
    return f"{value:,.0f} ms" if value >= 99.95 else f"{value:.1f} ms"


def time_of_day(time_s: float, *, seconds: bool = False) -> str:
    """Hours and minutes of a Unix time, in UTC.

    >>> time_of_day(1767276240)
    '14:04'
    """
    return datetime.fromtimestamp(time_s, UTC).strftime("%H:%M:%S" if seconds else "%H:%M")
