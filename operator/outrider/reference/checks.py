"""The page of every check that is made before a service runs, from the checks themselves."""

from __future__ import annotations

from outrider.cli import preflight_cluster, preflight_report
from outrider.cli.preflight_examination import DEPLOYMENT_CHECKS
from outrider.engine.admission import CHECKS
from outrider.engine.flags import ENVIRONMENT, REFUSED
from outrider.reference.markdown import table

INTRODUCTION = """\
# Checks

The API server checks the form of a resource; admission checks the engine that it asks for, in the operator and in
`outrider preflight` alike; preflight also looks at what experience warns of, and with `--cluster` at what only a
cluster can tell. A check that lacks what it needs, such as the model's `config.json`, says so and is not made.
"""

ADMISSION = """\
## Admission

The code is the reason of the condition `Ready` when a check refuses the resource, and stands with each finding in the
document of preflight. A check may refuse one thing and only warn of another.
"""

DEPLOYMENT = """\
## Before a deployment

What `outrider preflight` looks at beside form and admission. These warn; where one repeats what admission refuses it
refuses as well.
"""

CLUSTER = """\
## On a cluster

Asked with `outrider preflight --cluster`, by dry runs and by looking; nothing is written, and what the caller may not
read is not checked.
"""


def page() -> str:
    """The page as Markdown, the same text for the same checks."""
    shape = (preflight_report.__doc__ or "").split("The document has the shape", 1)[1].replace("``", "`")
    parts = [
        INTRODUCTION,
        ADMISSION,
        table(
            ("code", "fields", "why", "remedy", "source"),
            [
                (f"`{one.code}`", ", ".join(f"`{field}`" for field in one.fields), one.why, one.remedy, one.source)
                for one in CHECKS
            ],
        ),
        "### Arguments that are refused\n\nIn every spelling that vLLM's parser takes.",
        table(("argument", "it"), [(f"`{flag}`", meaning) for flag, meaning in sorted(REFUSED.items())]),
        "### Variables that are refused\n\nAnd every variable that begins with `OUTRIDER_`.",
        table(("variable", "it"), [(f"`{name}`", meaning) for name, meaning in sorted(ENVIRONMENT.items())]),
        DEPLOYMENT,
        table(
            ("name", "why", "remedy", "source"),
            [(f"`{one.name}`", one.why, one.remedy, one.source) for one in DEPLOYMENT_CHECKS],
        ),
        CLUSTER,
        table(
            ("name", "why", "remedy", "source"),
            [(f"`{name}`", why, remedy, source) for name, why, remedy, source in preflight_cluster.named()],
        ),
        f"## The document of `outrider preflight -o json`\n\nIt has the shape{shape}",
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"
