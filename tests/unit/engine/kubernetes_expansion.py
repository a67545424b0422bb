"""What Kubernetes makes of a container's arguments and values, step for step as its own source does it.

From third_party/forked/golang/expansion/expand.go of Kubernetes 1.37: bytes, not letters, are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with ``$(NAME)`` put in; names that nobody set stay as they are written."""
    source, result, checkpoint, cursor = text.encode(), b"", 0, 0
    while cursor < len(source):
        if source[cursor] == ord("$") and cursor + 1 < len(source):
            result += source[checkpoint:cursor]
            name, put_in, advance = _name(source[cursor + 1 :])
            result += variables.get(name.decode(), f"$({name.decode()})").encode() if put_in else name
            cursor += advance
            checkpoint = cursor + 1
        cursor += 1
    return (result + source[checkpoint:]).decode(errors="replace")


def _name(rest: bytes) -> tuple[bytes, bool, int]:
    if rest[:1] == b"$":
        return b"$", False, 1
    if rest[:1] == b"(":
        end = rest.find(b")", 1)
        return (rest[1:end], True, end + 1) if end > 0 else (b"$(", False, 1)
    return b"$" + chr(rest[0]).encode(), False, 1  # a byte beyond ASCII becomes a letter of its own here
