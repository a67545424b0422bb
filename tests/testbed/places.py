"""Where the local cluster keeps things: one folder in the user's cache, safe to delete while no cluster runs.

::

    ~/.cache/outrider/testbed/          (or $XDG_CACHE_HOME/outrider/testbed)
      tools/<tool>/<key>/               one build: the binary and the files of its module that a cluster loads
      build-logs/<tool>.log             the last build of each tool
      slots/<number>                    locks, held for as long as a process of the cluster lives
      clusters/<name>/                  run folders: state, certificates, data, logs
"""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
"""The package's own folder."""

REPOSITORY = HERE.parent.parent
"""Where ``python -m tests.testbed`` can be run."""

GO_MODULES = HERE / "tools"
"""One folder with go.mod and go.sum a tool."""


def cache_folder() -> Path:
    """The cluster's part of the user's cache; relative values of XDG_CACHE_HOME are ignored, as its standard asks."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    return base / "outrider" / "testbed"


def private_folder(path: Path) -> Path:
    """Make a folder (and the ones above it) that only this user can enter: it will hold keys."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path
