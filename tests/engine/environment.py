"""The real engine's environment: vLLM on CPU in a virtual environment of its own, made once in the user's cache folder.

::

    ~/.cache/outrider/engine/           (or $XDG_CACHE_HOME/outrider/engine)
      <key>/                            one environment; the key is a hash of the lock file and of the Python version
      <key>/complete                    written last: without it the folder is a rest of a run that was broken off
      <key>.lock, <key>.log             the lock of those who make it, and what they were told
      models/<key>/                     tiny models (`tests.engine.models`)

It holds third-party packages alone. Our own come over PYTHONPATH (`plugin_path`), entry points included: edits are seen
at the next start, and several checkouts share one environment.

``python -m tests.engine.environment`` makes it, or says that it is there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import sys
import time
import tomllib
from pathlib import Path

from outrider import __version__
from tests.engine import commands
from tests.engine.commands import CommandFailed, Report

REPOSITORY = Path(__file__).resolve().parents[2]
LOCK_FILE = REPOSITORY / "requirements" / "engine.txt"
HOW_TO_MAKE = "make test-engine makes it, or python -m tests.engine.environment (6 GB of disk)"


def cache_folder() -> Path:
    """The engine's part of the user's cache; relative values of XDG_CACHE_HOME are ignored, as its standard asks."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    return base / "outrider" / "engine"


def folder() -> Path:
    """Of the environment that belongs to the present lock file."""
    key = hashlib.sha256(LOCK_FILE.read_bytes() + platform.python_version().encode()).hexdigest()[:16]
    return cache_folder() / key


def python() -> Path:
    """The environment's interpreter."""
    return folder() / "bin" / "python"


def is_ready() -> bool:
    """Whether the environment is there, whole."""
    return (folder() / "complete").exists()


def ensure(report: Report) -> Path:
    """Make the environment unless it is there; returns its interpreter.

    Two callers at once are safe: the second one waits and finds it made.

    Raises:
        CommandFailed: a package could not be had; no half environment will be used.
    """
    if is_ready():
        return python()
    target = folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        _take(lock.fileno(), report)
        if is_ready():
            return python()
        began, log = time.monotonic(), target.with_suffix(".log")
        report(f"making the engine's environment (vLLM on CPU, 166 packages, 6 GB; minutes the first time); log: {log}")
        log.write_bytes(b"")
        _uv(["venv", "--clear", "--no-project", "--python", sys.executable, str(target)], log, lock.fileno(), report)
        # Bytecode at once: each start imports vLLM in three processes, and takes twice as long without it.
        install = ["pip", "sync", "--python", str(python()), "--require-hashes", "--compile-bytecode", str(LOCK_FILE)]
        _uv(install, log, lock.fileno(), report)
        (target / "complete").touch()
        report(f"the engine's environment is made, in {time.monotonic() - began:.0f} s: {target}")
    return python()


def plugin_path(place: Path) -> str:
    """PYTHONPATH entries that make our packages importable in the environment and their entry points known.

    The entry points are those of pyproject.toml, written to a metadata folder under ``place``.
    """
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    name, version = project["name"], __version__
    metadata = place / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = {"console_scripts": project.get("scripts", {})} | project.get("entry-points", {})
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{point} = {target}" for point, target in points.items()), ""]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    return os.pathsep.join([str(place), str(REPOSITORY / "operator"), str(REPOSITORY / "runtime")])


def variables(place: Path) -> dict[str, str]:
    """The environment variables for anything that runs vLLM here; ``place`` is the folder for our metadata."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "OUTRIDER_"))}
    return inherited | {
        "PYTHONPATH": plugin_path(place),
        "PATH": f"{python().parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # the second runner needs Triton
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else every engine's worker is bound to the first core
    }


def _take(lock: int, report: Report) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        report("another process makes the engine's environment, waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _uv(arguments: list[str], log: Path, lock: int, report: Report) -> None:
    """Run uv. It inherits the lock, so that nobody begins anew beside one that outlives us."""
    command = [sys.executable, "-m", "uv", *arguments]
    commands.run(command, log, report, name=f"uv {arguments[0]}", keep_open=[lock])


def main() -> int:
    """Make it and say so."""
    try:
        interpreter = ensure(lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
    except CommandFailed as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print(interpreter)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
