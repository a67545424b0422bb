"""What became of requests, from real scrapes and from texts of engines that fail, cut and repeat."""

from __future__ import annotations

import pytest

from outrider.core.ended import Ended
from outrider.core.observation import Observation, observe
from outrider.core.revisions.answering import answers_of
from outrider.core.revisions.evidence import NOTHING
from outrider.core.series import Series

from ..exposition import SCRAPES, V0_11, grown_from_zero, scraped

ENGINE = 'engine="0",model_name="t"'


def seen(series: list[Series]) -> Observation:
    found = observe(series, 0.0, 10.0)
    assert isinstance(found, Observation), found
    return found


def text(http: str = "", **reasons: float) -> str:
    """An engine that ended so many requests by reason, of 100 tokens each but five of one token."""
    total = sum(reasons.values())
    lines = [
        f"vllm:num_requests_running{{{ENGINE}}} 3",
        f"vllm:generation_tokens_total{{{ENGINE}}} 5000",
        *(f'vllm:request_success_total{{{ENGINE},finished_reason="{name}"}} {n}' for name, n in reasons.items()),
        f'vllm:request_generation_tokens_bucket{{{ENGINE},le="1.0"}} 5',
        f'vllm:request_generation_tokens_bucket{{{ENGINE},le="+Inf"}} {total}',
        f"vllm:request_generation_tokens_count{{{ENGINE}}} {total}",
        f"vllm:request_generation_tokens_sum{{{ENGINE}}} {100 * total}",
        http,
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("method", "requests", "tokens"), [("draft-model", 105, 39_552), ("ngram", 183, 70_752)])
def test_a_real_engine_tells_how_its_requests_ended(method: str, requests: int, tokens: int) -> None:
    first, second = ((SCRAPES / f"vllm-0.32.0-{method}-{name}.prom").read_text() for name in ("first", "second"))
    found = seen(scraped({0.0: first, 10.0: second}))
    # All of that load asked for a fixed number of tokens and ignored the end of the text.
    assert found.ended == Ended(total=requests, cut=requests, tokens=tokens)
    told = answers_of(found, 0.005, 0.8)
    assert (told.ended, told.tokens, told.errors, told.empty) == (requests, tokens, 0.0, 0.0)
    assert told.tpot_of == requests
    assert 0.0 < told.tpot_within < told.tpot_of
    assert 0.0 < told.ttft_within <= told.ttft_of


def test_a_real_engine_has_every_reason_from_its_start() -> None:
    text = (SCRAPES / "vllm-0.32.0-ngram-first.prom").read_text()
    for reason in ("stop", "length", "abort", "error", "repetition"):
        assert f'vllm:request_success_total{{engine="0",finished_reason="{reason}"' in text


def test_reasons_and_lengths_are_read() -> None:
    found = seen(grown_from_zero(text(stop=70, length=20, abort=2, error=3, repetition=5))).ended
    assert found == Ended(total=100, failed=3, cut=20, repeating=5, short=5, tokens=10_000)


def test_what_failed_in_the_server_alone_is_a_failure_too() -> None:
    http = "\n".join(
        f'http_requests_total{{handler="{handler}",method="{method}",status="{status}"}} {count}'
        for handler, method, status, count in (
            ("/v1/completions", "POST", "2xx", 90),
            ("/v1/completions", "POST", "5xx", 6),
            ("/v1/chat/completions", "POST", "5xx", 4),
            ("/v1/completions", "POST", "4xx", 50),
            ("/health", "GET", "5xx", 500),
        )
    )
    found = seen(grown_from_zero(text(http, stop=90, error=4))).ended
    assert (found.total, found.failed) == (100, 10)


def test_the_first_failure_counts_although_its_series_is_new() -> None:
    before = text('http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 90', stop=90)
    after = before + 'http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 8\n'
    assert seen(scraped({0.0: before, 10.0: after})).ended.failed == 8


def test_the_failures_of_a_server_of_several_engines_count_once() -> None:
    one = text('http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 8', stop=90)
    other = text(stop=90).replace('engine="0"', 'engine="1"')
    found = seen(grown_from_zero(one + other))
    assert len(found.engines) == 2
    assert (found.ended.total, found.ended.failed) == (188, 8)


def test_what_the_server_counts_is_no_engine() -> None:
    http = 'http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 90'
    assert seen(grown_from_zero(text(http, stop=90))).left_out == ()


def test_an_older_engine_tells_less_and_nothing_wrong() -> None:
    found = seen(grown_from_zero(V0_11))
    assert found.ended == Ended()
    assert answers_of(found, 0.012, 0.8) is NOTHING


def test_without_an_objective_nothing_is_within_it() -> None:
    first, second = ((SCRAPES / f"vllm-0.32.0-ngram-{name}.prom").read_text() for name in ("first", "second"))
    told = answers_of(seen(scraped({0.0: first, 10.0: second})), None, None)
    assert (told.tpot_of, told.tpot_within, told.ttft_of, told.ttft_within) == (0.0, 0.0, 0.0, 0.0)
    assert told.ended > 0
