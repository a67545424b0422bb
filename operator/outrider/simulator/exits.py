"""How a simulated engine ends before it serves."""

from __future__ import annotations


class EngineExit(Exception):
    """The process stops with this status, as vLLM would.

    ``after_load`` tells whether vLLM finds the fault only once the weights are loaded, half a minute or more later.
    """

    def __init__(self, exit_code: int, message: str, *, after_load: bool = False) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
        self.after_load = after_load


def refuse(message: str) -> EngineExit:
    """A value that vLLM's configuration does not take: found before anything is loaded, exit status 1."""
    return EngineExit(1, message)
