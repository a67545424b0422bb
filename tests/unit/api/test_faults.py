"""Faults of a resource's form: each is told in words that a user can follow without knowing Python."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.api.resource import parse
from outrider.errors import InvalidSpec
from tests.unit.api.bodies import changed, example


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            {"spec.speculation.method": None},
            "spec.speculation.method: is needed: add it (kubectl explain sis.spec.speculation.method)",
            id="nothing",
        ),
        pytest.param(
            {"spec.speculation.tuning": {"mode": "Fixed", "schedule": [{"first": 1, "last": 8}]}},
            "spec.speculation.tuning.schedule[0].speculativeTokens: is needed: add it"
            " (kubectl explain sis.spec.speculation.tuning.schedule.speculativeTokens)",
            id="nothing in a list",
        ),
        pytest.param(
            {"spec.resources.gpus": "2"},
            "spec.resources.gpus: must be a whole number, without quotes and without a unit",
            id="a number in quotes",
        ),
        pytest.param(
            {"spec.objectives.tpotMilliseconds": 0.04},
            "spec.objectives.tpotMilliseconds: must be a whole number, without quotes and without a unit",
            id="a fraction",
        ),
        pytest.param(
            {"spec.resources.memory": "64GB"},
            "spec.resources.memory: must be a number with or without one of the units Ki, Mi, Gi, Ti, k, M, G, T and m,"
            " for example 64Gi or 500m",
            id="a unit of shops",
        ),
        pytest.param(
            {"spec.engine.version": "v0.33.0"},
            "spec.engine.version: must be the three numbers of a version and nothing before them, for example 0.33.0",
            id="a version as tags have it",
        ),
        pytest.param(
            {"spec.engine.version": 0.33},
            "spec.engine.version: must be text, and YAML reads a number here: put it in quotes",
            id="a version that YAML takes for a number",
        ),
        pytest.param(
            {"spec.engine.env": [{"name": "A", "value": True}]},
            "spec.engine.env[0].value: must be text, and YAML reads a boolean here: put it in quotes",
            id="a word that YAML takes for a boolean",
        ),
        pytest.param(
            {"spec.engine.extraArgs": "--seed 1"},
            "spec.engine.extraArgs: must be a list: begin a line with a dash for each item",
            id="text in place of a list",
        ),
        pytest.param(
            {"spec.speculation.draft": "org/head"},
            "spec.speculation.draft: must be a block of fields, each on a line of its own, or {field: value}",
            id="text in place of a block",
        ),
        pytest.param(
            {"spec.paused": "true"}, "spec.paused: must be true or false, without quotes", id="a boolean in quotes"
        ),
        pytest.param(
            {"spec.speculation.maxSpeculativeTokens": 17},
            "spec.speculation.maxSpeculativeTokens: must be less than or equal to 16",
            id="too much",
        ),
        pytest.param(
            {"spec.storage": {"modelCache": {"claimName": "My_Claim"}}},
            "spec.storage.modelCache.claimName: must be the name of an object: small letters, digits, dashes and dots,"
            " beginning and ending with a letter or digit",
            id="a name that no object has",
        ),
    ],
)
def test_a_fault_is_told_with_its_remedy(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        parse(changed(example(), changes))
    assert refusal.value.message == words


@pytest.mark.parametrize(
    ("given", "ending"),
    [
        pytest.param("EAGLE3", "'dflash' or 'dspark'; did you mean eagle3?", id="capitals"),
        pytest.param("draft-model", "'dflash' or 'dspark'; did you mean draft_model?", id="a dash"),
        pytest.param("medusa", "'dflash' or 'dspark'", id="nothing near"),
        pytest.param(False, "'dflash' or 'dspark'", id="no word at all"),
    ],
)
def test_a_word_that_was_probably_meant(given: Any, ending: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        parse(changed(example(), {"spec.speculation.method": given}))
    assert refusal.value.message.startswith("spec.speculation.method: must be 'eagle', ")
    assert refusal.value.message.endswith(ending)


def test_a_bare_off_is_explained() -> None:
    with pytest.raises(InvalidSpec, match="write the word in quotes: YAML reads a bare Off as a boolean"):
        parse(changed(example(), {"spec.autoscaling.mode": False}))
