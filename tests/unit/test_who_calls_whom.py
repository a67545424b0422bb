"""Whom the operator calls: its API server, its metrics store and pods. No address in a resource is among them."""

from __future__ import annotations

import ast
from pathlib import Path

import outrider

ROOT = Path(outrider.__file__).parent
CALLERS = (
    "aiohttp",
    "requests",
    "urllib3",
    "urllib.request",
    "http.client",
    "httpx",
    "socket",
    "prometheus_api_client",
)
"""Packages that open connections."""
TOOLS = ("simulator", "cli")
"""What people run themselves: it calls with their rights, and not with the operator's."""


def imports(path: Path) -> set[str]:
    """All modules that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def calls(path: Path) -> bool:
    return any(name == caller or name.startswith(caller + ".") for name in imports(path) for caller in CALLERS)


def test_adapters_alone_open_connections() -> None:
    """What a resource names (a hub, a bucket, an image) is fetched by its pods, in the tenant's own name."""
    found = {path.relative_to(ROOT).parts[0] for path in ROOT.rglob("*.py") if calls(path)} - set(TOOLS)
    assert found == {"adapters"}


def test_no_adapter_knows_a_resource() -> None:
    """Its callers hand it a path of the API server, the address of a pod, or a query for the one store."""
    for path in (ROOT / "adapters").glob("*.py"):
        assert not any(name.startswith(("outrider.api", "outrider.manifests")) for name in imports(path)), path
