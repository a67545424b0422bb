"""The document of services that share a quota, and its page and table."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from rich.console import Console

from outrider.replay import html
from outrider.replay.quota import page, report, table
from outrider.replay.quota.run import Move


def test_the_form_is_that_of_the_schema(document: dict[str, Any]) -> None:
    assert document["schema"] == "outrider.simulate-quota/v1"
    assert list(document) == [
        "schema", "outrider", "inputs", "edges_s", "verdict", "together", "services", "moves", "notes",
    ]  # fmt: skip
    intervals = len(document["edges_s"]) - 1
    for one in document["services"]:
        assert set(one["timeline"]) >= {"replicas", "most", "wanted", "gpus", "goodput_tps", "tpot_p95_s"}
        assert {len(values) for values in one["timeline"].values()} == {intervals}
        assert one["replica_changes"][0] == {"at_s": 0.0, "replicas": 1}
    assert len(document["together"]["timeline"]["gpus"]) == intervals
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_services_add_up_to_what_they_are_together(document: dict[str, Any]) -> None:
    totals, together = [one["totals"] for one in document["services"]], document["together"]["totals"]
    assert together["requests"] == sum(one["requests"] for one in totals)
    met = sum(one["requests_met"] * one["requests"] for one in totals) / together["requests"]
    assert together["requests_met"] == pytest.approx(met, abs=1e-4)
    assert together["gpu_seconds"] == pytest.approx(sum(one["gpu_seconds"] for one in totals))
    assert (together["most_gpus"], together["samples_over_quota"]) == (3, 0)
    assert "At most 3 of 3 GPUs were held at once, never more than the quota." in document["verdict"]


def test_who_was_limited_is_told_with_its_time_within_the_experiment(document: dict[str, Any]) -> None:
    chat, code = document["services"]
    (span,) = code["limited"]
    assert span["reason"] == "GPUQuota"
    assert 0.0 < span["from_s"] < span["to_s"] <= 180.0
    assert code["totals"]["limited_s"] == span["to_s"] - span["from_s"]
    assert chat["totals"]["short_share"] > 0.3


def test_a_priority_class_without_a_number_is_noted(document: dict[str, Any]) -> None:
    assert [one["priority"] for one in document["services"]] == [0, 7]
    assert any(
        "chat names the PriorityClass second" in note and "--priority chat:" in note for note in document["notes"]
    )


def test_a_move_that_takes_an_earlier_one_back_is_counted() -> None:
    there, back = Move(1.0, "chat", "code", ""), Move(2.0, "code", "chat", "")
    assert report.moves_back([there, there]) == 0
    assert report.moves_back([there, back, there]) == 2


def test_the_table_shows_the_services_side_by_side_and_what_was_shared_out(document: dict[str, Any]) -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    table.show(document, console)
    shown = console.export_text()
    assert "2 services of ml on 3 nvidia.com/gpu over 03:00" in shown
    assert re.search(r"^code +7 ", shown, re.MULTILINE)
    assert re.search(r"^together .* \d", shown, re.MULTILINE)
    assert "chat: 00:00 1" in shown
    assert re.search(
        r"^\d\d:\d\d to 03:00 code: the load needs \d+ replicas, and there may be 2 now", shown, re.MULTILINE
    )


def test_the_page_has_a_section_a_service_and_carries_the_document(document: dict[str, Any]) -> None:
    text = page.render(document, "outrider simulate <x>")
    carried = re.search(r'id="result">(.*?)</script>', text, re.DOTALL)
    assert carried is not None
    assert json.loads(carried[1]) == document
    assert [re.findall("<h2>(.*?)</h2>", text)[-2:]] == [["chat", "code"]]
    assert text.count('data-policy="code"') == text.count('<svg class="panel"')
    assert "&lt;x&gt;" in text


def test_every_look_of_a_service_is_in_the_style_sheet() -> None:
    sheet = html.style_sheet()
    assert all(re.search(rf"\.service-{number} {{ stroke: var", sheet) for number in range(page.STYLES))
