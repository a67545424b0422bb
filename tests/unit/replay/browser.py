"""A headless Chromium for tests of pages: the machine's own, or Debian's package unpacked in the user's cache folder.

::

    ~/.cache/outrider/browser/          (or $XDG_CACHE_HOME/outrider/browser)
      root/                             the package and what it needs and the machine lacks; nothing is installed
      complete                          written last: without it the folder is a rest of a run that was broken off
      lock, log, apt/                   the lock of those who make it, what they were told, the package lists

``python -m tests.unit.replay.browser`` finds or makes it, and says where it is.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGE = "chromium-headless-shell"
FETCH_S, RUN_S = 600.0, 120.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # a page that asks the network for anything fails
)  # fmt: skip
CONSOLE = re.compile(r"CONSOLE(?::\d+|\(\d+\))\] (.*)")


class NoBrowser(Exception):
    """There is none, and none can be had; the text says why."""


@dataclass(frozen=True)
class Browser:
    """A browser that can be run."""

    program: Path
    libraries: tuple[Path, ...] = ()
    """Where libraries lie that the machine itself lacks."""

    def dom(self, page: Path, profile: Path, width: int = 1280, height: int = 900) -> tuple[str, list[str]]:
        """Open a page; returns its document once it has loaded, and what it said on the console."""
        done = self.run("--dump-dom", page, profile, width, height)
        return done.stdout, CONSOLE.findall(done.stderr)

    def picture(self, page: Path, profile: Path, to: Path, width: int = 1280, height: int = 900) -> None:
        """Open a page and write what is seen as PNG."""
        self.run(f"--screenshot={to}", page, profile, width, height)

    def run(self, what: str, page: Path, profile: Path, width: int, height: int) -> subprocess.CompletedProcess[str]:
        """Start it for one page; ``profile`` is a folder that it may write to."""
        size = f"--window-size={width},{height}"
        command = [str(self.program), *FLAGS, size, f"--user-data-dir={profile}", what, page.resolve().as_uri()]
        searched = [*map(str, self.libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        environment = os.environ | ({"LD_LIBRARY_PATH": os.pathsep.join(searched)} if searched else {})
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=RUN_S, check=True)


@cache
def find() -> Browser:
    """The machine's browser, or the one of the cache folder, which is made if need be.

    Raises:
        NoBrowser: neither is there.
    """
    for name in NAMES:
        program = shutil.which(name)
        if program is not None:
            return Browser(Path(program))
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _fetch(folder)
    program_file = folder / "root" / "usr" / "lib" / "chromium" / PACKAGE
    libraries = sorted({one.parent for one in (folder / "root" / "usr" / "lib").rglob("*.so*")} - {program_file.parent})
    return Browser(program_file, tuple(libraries))


def _folder() -> Path:
    configured = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    return base / "outrider" / "browser"


def _fetch(folder: Path) -> None:
    """Download the package and what it needs, and unpack all beside each other; no right is needed for it."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoBrowser(f"none of {', '.join(NAMES)} is installed, and without apt-get none can be fetched")
    for part in ("root", "packages", "apt/lists/partial", "apt/cache/archives/partial"):
        shutil.rmtree(folder / part, ignore_errors=True)
        (folder / part).mkdir(parents=True)
    options = [
        "-o", f"Dir::State::lists={folder}/apt/lists", "-o", f"Dir::Cache={folder}/apt/cache",
        "-o", "APT::Sandbox::User=root",
    ]  # fmt: skip
    _call(folder, ["apt-get", *options, "update"])
    plan = _call(folder, ["apt-get", *options, "install", "--simulate", "--no-install-recommends", PACKAGE])
    names = re.findall(r"^Inst (\S+)", plan, re.MULTILINE)
    _call(folder, ["apt-get", *options, "download", *names])
    for package in sorted((folder / "packages").glob("*.deb")):
        _call(folder, ["dpkg-deb", "--extract", str(package), str(folder / "root")])
    shutil.rmtree(folder / "packages")
    (folder / "complete").touch()


def _call(folder: Path, command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder / "packages", capture_output=True, text=True, timeout=FETCH_S, check=True
        )
    except (subprocess.SubprocessError, OSError) as error:
        (folder / "log").write_text(f"{command}\n{getattr(error, 'stderr', '') or error}\n")
        raise NoBrowser(f"{' '.join(command[:1] + command[-2:])} failed; see {folder / 'log'}") from error
    return done.stdout


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find().program}\n")
    except NoBrowser as none:
        sys.exit(str(none))
