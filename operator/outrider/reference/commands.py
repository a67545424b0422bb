"""The page of commands: arguments, options and exit statuses, from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from typer.main import get_command

from outrider.cli import exits, run
from outrider.cli.main import app
from outrider.reference.markdown import table

INTRODUCTION = """\
# Commands

`outrider COMMAND`, or `kubectl outrider COMMAND` where the executable `kubectl-outrider` is on the path.
`--help` prints what stands here. `outrider --install-completion` completes commands, options and names of services in
the shell; for `kubectl outrider` kubectl asks `kubectl_complete-outrider` by itself.

Commands that look at services take the cluster from the kubeconfig as kubectl does. Results go to standard output in
the form that `-o` names, everything else to standard error. In JSON and YAML `version`, or `schema`, is the number of
the form: within one, fields may be added and none changes its meaning.
"""
STATUSES = "## Exit statuses\n\nOf every command; statuses may be added, none changes its meaning."


def page() -> str:
    """The page as Markdown, the same text for the same commands."""
    group: Any = get_command(app)
    statuses = table(("status", "meaning"), [(str(status), meaning) for status, meaning in exits.MEANINGS.items()])
    parts = [INTRODUCTION, STATUSES, statuses]
    for name, command in group.commands.items():
        parts += _command(name, command)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"## outrider {name}"
    help_ = run.full_help() if isinstance(command, run.RunCommand) else command.help
    yield from ("\n".join(paragraph.split("\n")) for paragraph in _paragraphs(help_))
    parameters = [one for one in command.params if not getattr(one, "hidden", False)]
    rows = [
        (f"`{one.metavar or one.name.upper()}`", _words(one), _default(one))
        for one in parameters
        if one.param_type_name == "argument"
    ]
    rows += [
        (", ".join(f"`{spelling}`" for spelling in one.opts), _words(one), _default(one))
        for one in parameters
        if one.param_type_name == "option"
    ]
    if rows:
        yield table(("argument or option", "meaning", "default"), rows)


def _paragraphs(text: str) -> list[str]:
    """Of a help text; an example is code, and so is a line of a setting."""
    found = []
    for paragraph in text.strip().split("\n\n"):
        example = paragraph.removeprefix("For example: ")
        if example != paragraph:
            commands = "\n".join(example.split("; "))
            found.append(f"```sh\n{commands}\n```")
        elif paragraph.startswith("OUTRIDER_"):
            variable, meaning = paragraph.split(": ", 1)
            found.append(f"- `{variable}`: {meaning}")
        else:
            found.append(paragraph)
    return found


def _words(parameter: Any) -> str:
    """Its help, and the values that it takes."""
    kind = parameter.type_descriptor.annotation
    choices = list(kind) if isinstance(kind, type) and issubclass(kind, Enum) else []
    listed = f" One of {', '.join(f'`{one.value}`' for one in choices)}." if choices else ""
    help_ = (getattr(parameter, "help", "") or "").split(" (default:")[0]
    return help_ + listed


def _default(parameter: Any) -> str:
    """The default, as the help says it or as it is."""
    told = (getattr(parameter, "help", "") or "").partition(" (default: ")[2]
    if told:
        return told.removesuffix(")")
    value = parameter.default
    if value is None or isinstance(value, bool) or callable(value):
        return ""
    return f"`{getattr(value, 'value', value)}`"
