"""Secrets in the words of engines: what is masked, and what has to stay readable."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.reconcile.redaction import MASK, last_words, masked

VALUE = "aBcDeF0123456789xyz"


@pytest.mark.parametrize(
    "text",
    [
        f"hf_{VALUE}",
        f"api_org_{VALUE}",
        f"invalid key sk-proj-{VALUE}",
        f"Authorization: Bearer {VALUE}",
        f"'authorization': 'Basic {VALUE}=='",
        f"HF_TOKEN={VALUE}",
        f"token={VALUE}&page=2",
        "token=abc",
        f'"api_key": "{VALUE}"',
        f"{{'api_key': ['{VALUE}'], 'port': 8000}}",
        f"--api-key {VALUE}",
        f"['vllm', 'serve', '--api-key', '{VALUE}']",
        f"AWS_SECRET_ACCESS_KEY={VALUE}",
        "AKIAIOSFODNN7EXAMPLE",
        f"https://user:{VALUE}@example.com/models",
        f"https://{VALUE}@example.com/models",
        f"https://s3.example.com/w?X-Amz-Signature={VALUE}",
        f"password: {VALUE}",
        f"ghp_{VALUE}{VALUE}",
        f"eyJhbGciOi{VALUE}.eyJzdWIi{VALUE}.{VALUE}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{VALUE}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{VALUE}",
    ],
)
def test_values_that_look_like_secrets_are_masked(text: str) -> None:
    found = masked(f"before {text} after")
    assert MASK in found
    assert VALUE not in found
    assert "abc" not in found
    assert "FODNN7" not in found
    assert found.startswith("before ")
    assert masked(found) == found


@pytest.mark.parametrize(
    "text",
    [
        "OSError: You are trying to access a gated repo.",
        "num_speculative_tokens=3, max_tokens=16",
        "ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (8192)",
        "Token indices sequence length is longer than 4096",
        'set spec.model.tokenSecret to a Secret: key "token" is missing',
        "401 Client Error: Unauthorized for url: https://huggingface.co/org/target/resolve/main/config.json",
        "json.decoder.JSONDecodeError: Unexpected token: }",
        "sk-learn is not installed",
        "RuntimeError: CUDA error at /workspace/csrc/flash_api.cpp:123",
    ],
)
def test_what_explains_a_fault_stays_readable(text: str) -> None:
    assert masked(text) == text


@given(
    before=st.text(string.ascii_letters + " \n:=", max_size=40),
    value=st.text(string.ascii_letters + string.digits, min_size=16, max_size=40).map("7{}7".format),
    shape=st.sampled_from(["hf_{}", "token={}", "Bearer {}", '"api-key": "{}"', "https://u:{}@h/", "--hf-token={}"]),
    after=st.text(string.ascii_letters + " \n", max_size=700),
    limit=st.integers(8, 600),
)
def test_no_cut_brings_a_secret_back(before: str, value: str, shape: str, after: str, limit: int) -> None:
    found = last_words(f"{before} {shape.format(value)} {after}", limit)
    assert value not in found
    assert len(found) <= limit
    assert "\n" not in found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("one\n\n  two\tthree \n", "one | two three", id="lines and spaces"),
        pytest.param("first line\nsecond line\nthird", "…second line | third", id="from the beginning of a line"),
        pytest.param("a line that is much longer than that", "…s much longer than that", id="one long line"),
    ],
)
def test_last_words(text: str, words: str) -> None:
    assert last_words(text, 24) == words
