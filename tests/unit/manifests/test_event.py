"""Events on a service."""

from __future__ import annotations

from outrider.manifests.event import MAX_MESSAGE, event

METADATA = {"name": "chat", "namespace": "ml", "uid": "5f0c", "labels": {"app": "x"}}


def test_an_event_is_about_the_service_and_lies_beside_it() -> None:
    made = event(METADATA, "ScheduleChanged", "5 to 3", "2026-11-28T10:00:00Z", "17")
    assert made["metadata"] == {"name": "chat.17", "namespace": "ml"}
    assert made["involvedObject"]["uid"] == "5f0c"
    assert (made["type"], made["firstTimestamp"]) == ("Normal", made["lastTimestamp"])


def test_a_long_message_is_cut_since_the_server_would_refuse_it() -> None:
    made = event(METADATA, "EngineCrashLoop", "x" * 5000, "2026-11-28T10:00:00Z", "18", warning=True)
    assert made["type"] == "Warning"
    assert len(made["message"]) == MAX_MESSAGE
