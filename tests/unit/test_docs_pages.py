"""All Markdown pages: links lead somewhere, resources are admitted, and commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml

from outrider.api import KIND
from outrider.api.defaults import resolve
from outrider.api.resource import parse
from outrider.cli.main import app
from outrider.engine.admission import admit
from outrider.manifests.engine_settings import engine_config
from tests.unit.markdown import ROOT, anchors, blocks, links, pages

PAGES = pages()
CODE = ("sh", "bash", "console", "shell")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def resources() -> list[Any]:
    """Every resource of our kind in a YAML block, with where it stands."""
    found = []
    for path in PAGES:
        for block in blocks(path.read_text(encoding="utf-8")):
            if block.language in ("yaml", "yml") and f"kind: {KIND}" in block.text:
                bodies = [body for body in yaml.safe_load_all(block.text) if body.get("kind") == KIND]
                found += [pytest.param(body, id=f"{name_of(path)}:{block.line}") for body in bodies]
    return found


def commands() -> list[Any]:
    """Every call of `outrider` in a block of code, with where it stands."""
    found = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        fenced = [line for block in blocks(text) if block.language in CODE for line in joined(block.text)]
        indented = [line for line in joined(text) if line.startswith("    ")]
        for line in dict.fromkeys(line.strip() for line in (*fenced, *indented)):
            match = re.match(r"(?:[A-Z_]+=\S+ )*outrider ([a-z-]+.*)", line)
            if match:
                found.append(pytest.param(match[1].split("  #")[0], id=f"{name_of(path)}: {line[:60]}"))
    return found


def joined(text: str) -> list[str]:
    """Lines with those that a backslash continues as one."""
    return re.sub(r"\\\n\s*", "", text).splitlines()


def test_there_are_pages_resources_and_commands_to_look_at() -> None:
    assert len(PAGES) > 40
    assert len(resources()) >= 3
    assert len(commands()) >= 8


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_within_the_project_lead_to_a_file_and_a_heading(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in links(text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, heading = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        assert ROOT in target.parents, f"{link} leads out of the project"
        if heading and target.suffix == ".md":
            assert heading in anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("body", resources())
def test_a_resource_on_a_page_would_be_admitted(body: dict[str, Any]) -> None:
    resource = parse(body)
    admit(engine_config(resource, resolve(resource.spec)))


@pytest.mark.parametrize("call", commands())
def test_a_command_on_a_page_exists_with_its_options(call: str) -> None:
    words = shlex.split(call.split("|")[0].split(">")[0])
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    command = group.commands.get(words[0])  # type: ignore[union-attr]
    assert command is not None, f"outrider has no command {words[0]}"
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.split("=")[0] for word in words[1:] if word.startswith("-") and not re.match(r"-\d", word)}
    assert used - known - {"--help"} == set()
