"""What GitOps tools make of a resource: Argo CD's Lua and Flux' CEL, run as those tools run them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import celpy
import yaml
from celpy.adapter import json_to_cel
from lupa.lua51 import LuaRuntime

ROOT = Path(__file__).parents[3]
ARGO_CD = ROOT / "deploy" / "argocd" / "serving.outrider.dev" / "SpeculativeInferenceService"
PAGE = ROOT / "docs" / "gitops.md"

CLOSED = ("string", "math", "io", "debug", "coroutine", "dofile", "loadfile", "require", "python")
"""What Argo CD does not open to a health check unless an administrator allows it."""


def argo_cd(body: Mapping[str, Any]) -> tuple[str, str]:
    """Status and message by our health check, in the Lua and with the libraries that Argo CD has."""
    lua = LuaRuntime()
    for name in CLOSED:
        lua.globals()[name] = None
    lua.globals().obj = lua.table_from(dict(body), recursive=True)
    found = lua.execute((ARGO_CD / "health.lua").read_text(encoding="utf-8"))
    return found.status, found.message


def flux_expressions() -> dict[str, str]:
    """The expressions of the page on GitOps, by the field that they stand in."""
    for block in PAGE.read_text(encoding="utf-8").split("```yaml\n")[1:]:
        for document in yaml.safe_load_all(block.split("```")[0]):
            if document.get("spec", {}).get("healthCheckExprs"):
                (check,) = document["spec"]["healthCheckExprs"]
                return {name: check[name] for name in ("failed", "inProgress", "current") if name in check}
    raise AssertionError("docs/gitops.md has no healthCheckExprs")


@functools.cache
def flux_programs() -> dict[str, Any]:
    """The same, compiled."""
    environment = celpy.Environment()
    return {name: environment.program(environment.compile(text)) for name, text in flux_expressions().items()}


def flux(body: Mapping[str, Any]) -> str:
    """The verdict by these expressions, in the order in which Flux asks them."""
    resource = json_to_cel(dict(body))
    return next((name for name, program in flux_programs().items() if program.evaluate(resource)), "inProgress")
