"""Unknown fields, and the names that were probably meant."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.cli.preflight_schema import faults, fields, nearest
from tests.unit.api.bodies import changed, example


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("spec.speculation.ngram_prompt_lookup_max", "spec.speculation.ngram.promptLookupMax"),
        ("spec.speculation.tensorParallelSize", "spec.speculation.draft.tensorParallelSize"),
        ("spec.speculation.num_speculative_tokens", "spec.speculation.maxSpeculativeTokens"),
        ("spec.speculation.tokens", "spec.speculation.maxSpeculativeTokens"),
        ("spec.speculation.perBatchSize", "spec.speculation.tuning.schedule"),
        ("spec.speculation.draft_model", "spec.speculation.draft.id"),
        ("spec.speculation.max_draft_len", "spec.speculation.draft.maxLength"),
        ("spec.speculation.draftTP", "spec.speculation.draft.tensorParallelSize"),
        ("spec.engine.maxNumSeq", "spec.engine.maxNumSeqs"),
        ("spec.engine.trustRemoteCode", "spec.security.trustRemoteCode"),
        ("spec.resources.gpu", "spec.resources.gpus"),
        ("spec.model.quant", "spec.model.quantization"),
        ("spec.modell", "spec.model"),
        ("spec.replicas", "spec.autoscaling.minReplicas"),
        ("spec.nodeSelector", "spec.placement.nodeSelector"),
        ("spec.foo", None),
        ("spec.engine.xyzzy", None),
    ],
)
def test_the_name_that_was_meant(wrong: str, meant: str | None) -> None:
    assert nearest(wrong) == meant
    assert meant is None or meant in fields()


def test_every_field_is_nearest_to_itself() -> None:
    assert [field for field in fields() if nearest(field + "x") != field] == []


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        pytest.param(
            {"spec.engine": {"maxNumSeq": 4}},
            ["spec.engine.maxNumSeq: there is no such field; did you mean spec.engine.maxNumSeqs?"],
            id="a slip",
        ),
        pytest.param({"spec.xyzzy": 1}, ["spec.xyzzy: there is no such field; remove it"], id="nothing near"),
        pytest.param(
            {"spec.speculation.maxSpeculativeTokens": "5"},
            ["spec.speculation.maxSpeculativeTokens: must be a whole number"],
            id="a type",
        ),
        pytest.param(
            {"spec.speculation.tuning": {"mode": False}},
            ["spec.speculation.tuning.mode: must be 'Adaptive', 'Observe', 'Fixed' or 'Off'; write"],
            id="a bare Off, which YAML takes for a boolean",
        ),
        pytest.param({"metadata.name": "chat.v1"}, ["metadata.name must begin with a letter"], id="a name"),
        pytest.param({"metadata.name": "chat_v1"}, ["metadata.name must begin with a letter"], id="an underscore"),
        pytest.param(
            {"apiVersion": "serving.outrider.dev/v1"},
            ["apiVersion is 'serving.outrider.dev/v1', which the API server does not know: write serving.outrider.dev"],
            id="a version that is not served",
        ),
        pytest.param(
            {"apiVersion": None},
            ["apiVersion is missing: write serving.outrider.dev/v1alpha1"],
            id="no version",
        ),
        pytest.param({"kind": "Deployment"}, ["kind is 'Deployment', not SpeculativeInferenceService"], id="a kind"),
        pytest.param(
            {"spec.xyzzy": 1, "spec.speculation.maxSpeculativeTokens": "5"},
            ["spec.speculation.maxSpeculativeTokens: must be", "spec.xyzzy: there is no such field"],
            id="two at once",
        ),
        pytest.param({}, [], id="nothing"),
    ],
)
def test_faults_name_the_field(changes: dict[str, Any], messages: list[str]) -> None:
    found = faults(changed(example(), changes))
    assert len(found) == len(messages)
    for verdict, message in zip(found, messages, strict=True):
        assert verdict.message.startswith(message)
        assert verdict.state == "refused"
