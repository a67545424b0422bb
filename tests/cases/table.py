"""The table of admission cases, and what our own code says to each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from outrider.api.defaults import resolve
from outrider.api.resource import parse
from outrider.engine import model_facts
from outrider.engine.admission import admit
from outrider.engine.model_facts import PairFacts
from outrider.manifests import engine_settings, scaled_object
from tests.unit.api.bodies import Body, changed, example

Case = Mapping[str, Any]


def cases() -> list[Case]:
    """All cases, in the order of their numbers."""
    table: list[Case] = yaml.safe_load(Path(__file__).with_name("admission.yaml").read_text(encoding="utf-8"))
    return table


def body(case: Case) -> Body:
    """The resource of a case, as its author would apply it."""
    return changed(example(), case["set"])


def warnings(case: Case) -> str:
    """What is said of a resource that is admitted.

    Raises:
        InvalidSpec: it is refused.
    """
    resource = parse(body(case))
    config = case.get("config", {})
    facts = PairFacts(**{side: model_facts.read(document) for side, document in config.items()})
    admitted = admit(engine_settings.engine_config(resource, resolve(resource.spec)), facts)
    return "\n".join([*admitted.warnings, *scaled_object.warnings(resource)])
