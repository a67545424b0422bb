"""A search, guided by coverage, for what makes a reader of outside input stumble: `make fuzz-parsers`.

    python -m tests.fuzz.coverage_guided SECONDS [READER ...]

Each reader of `tests.fuzz.outside` gets a process of its own, and the seeds to begin with. What is worth keeping
goes to `build/fuzz/READER`; an input that a reader stumbles over is written there too, as ``crash-…``, and ends the
search.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

KEPT = Path("build/fuzz")
LONGEST = 65_536
"""Bytes of an input; `tests.fuzz.test_outside_input` has longer ones."""


def main(seconds: int, names: list[str]) -> int:
    """Search with each reader in turn; the exit status of the first that stumbled, or 0."""
    from tests.fuzz.outside import READERS

    for name in names or READERS:
        command = [sys.executable, "-m", "tests.fuzz.coverage_guided", "--reader", name]
        found = subprocess.run([*command, str(_seeded(name)), f"-max_total_time={seconds}", f"-max_len={LONGEST}"])
        if found.returncode:
            return found.returncode
    return 0


def _seeded(name: str) -> Path:
    from tests.fuzz.outside import seeds

    folder = KEPT / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, document in enumerate(seeds()[name]):
        text = document if isinstance(document, str) else json.dumps(document)
        (folder / f"seed-{number}").write_bytes(text.encode())
    return folder


def _search(name: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["outrider", "outrider_runtime"]):
        from tests.fuzz.outside import READERS
    atheris.Setup([sys.argv[0], *arguments, f"-artifact_prefix={KEPT / name}/"], READERS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1] == "--reader":
        _search(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
