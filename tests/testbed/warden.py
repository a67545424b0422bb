"""Wait for the owner of a process table to die, then end everything that it left running.

Run by `processes.Guard` as ``python -m tests.testbed.warden OWNER TABLE [DISCARD ...]``. It polls its parent's id: an
open pipe would be kept alive by every fork of the owner, and this works in any sandbox.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.testbed.processes import ProcessTable

_POLL_S = 0.2
_QUIET_ROUNDS = 3  # A launcher that was between fork and record when its owner died shows up within the next round.


def main(owner: int, folder: Path, discard: list[Path]) -> None:
    """Return when the owner is gone and nothing of its table runs any more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.getppid() == owner:
        time.sleep(_POLL_S)
    table = ProcessTable(folder)
    quiet = 0
    while quiet < _QUIET_ROUNDS:
        alive = table.alive()
        table.stop(alive, signal.SIGKILL)
        quiet = 0 if alive else quiet + 1
        time.sleep(_POLL_S)
    for path in discard:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), [Path(argument) for argument in sys.argv[3:]])
