"""The OpenAI bodies that vLLM takes and gives, as far as load generators, probes and evaluations need them.

A text prompt has as many tokens as words; an answer is filler and as long as the request allows, but for the letter
that a multiple-choice question asks for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from outrider.simulator.choices import chosen
from outrider.simulator.request import Request
from outrider.simulator.settings import EngineSettings

COMPLETION_TOKENS = 16  # the API's default for /v1/completions
CHAT_TOKENS = 200  # a chat answer without a limit ends by itself about where those of the Azure trace do (mean 211)
TEMPLATE_TOKENS = 4  # that a chat template adds to a message
REFUSED_WHILE_SPECULATING = ("min_p", "logit_bias")


class BadRequest(Exception):
    """The request is answered with this HTTP status and sentence."""

    def __init__(self, message: str, status: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": None, "code": status}}


FAILURE = BadRequest("Internal server error", 500, "InternalServerError")
"""The answer to a request that failed in the engine."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A completion that somebody asks for."""

    chat: bool
    model: str
    stream: bool
    include_usage: bool
    request: Request
    letter: str = ""
    """The option that it chooses; empty for what is no multiple-choice question."""

    @property
    def object_name(self) -> str:
        """What the answer calls itself; a stream's parts are chunks."""
        if not self.chat:
            return "text_completion"
        return "chat.completion.chunk" if self.stream else "chat.completion"


def parse_ask(
    document: Any,
    *,
    chat: bool,
    models: tuple[str, ...],
    max_model_len: int,
    speculating: bool,
    id: str,
    now_s: float,
    careless: float = 0.0,
) -> Ask:
    """Read a body; ``careless`` is the share of questions that are answered wrong, 0 to 1.

    Raises:
        BadRequest: with vLLM's status, in our words.
    """
    if not isinstance(document, Mapping):
        raise BadRequest("the body must be a JSON object")
    model = document.get("model") or models[0]
    if model not in models:
        raise BadRequest(f"The model `{model}` does not exist.", 404, "NotFoundError")
    for key in REFUSED_WHILE_SPECULATING:
        if speculating and document.get(key):
            raise BadRequest(f"{key} is not supported while speculative decoding is configured")
    if document.get("n", 1) != 1:
        raise BadRequest("n above 1 is not simulated")
    prompt = _messages_length(document.get("messages")) if chat else _prompt_length(document.get("prompt"))
    limit = document.get("max_completion_tokens") or document.get("max_tokens")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise BadRequest(f"max_tokens must be at least 1, got {limit!r}")
    output, reason = limit or COMPLETION_TOKENS, "length"
    if chat and limit is None:
        output, reason = max(1, min(CHAT_TOKENS, max_model_len - prompt)), "stop"
    if prompt + output > max_model_len:
        raise BadRequest(
            f"This model's maximum context length is {max_model_len} tokens, but the request asks for {output} output"
            f" tokens after a prompt of {prompt} tokens."
        )
    options = document.get("stream_options")
    return Ask(
        chat=chat,
        model=str(model),
        stream=bool(document.get("stream")),
        include_usage=isinstance(options, Mapping) and bool(options.get("include_usage")),
        request=Request(id, now_s, prompt, output, _acceptance(document.get("vllm_xargs")), reason),
        letter=chosen(_last_text(document, chat), careless),
    )


def model_list(settings: EngineSettings) -> dict[str, Any]:
    """What ``/v1/models`` says."""
    cards = [
        {"id": name, "object": "model", "root": settings.model, "max_model_len": settings.max_model_len}
        for name in settings.served_model_names
    ]
    return {"object": "list", "data": cards}


def answer(ask: Ask, created_s: float, num_tokens: int, finish_reason: str) -> dict[str, Any]:
    """A whole answer."""
    text = words(ask, 0, num_tokens)
    content = {"message": {"role": "assistant", "content": text}} if ask.chat else {"text": text}
    return {
        **_frame(ask, created_s),
        "choices": [{"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}],
        "usage": usage(ask, num_tokens),
    }


def chunk(ask: Ask, created_s: float, text: str, finish_reason: str | None) -> dict[str, Any]:
    """A part of a streamed answer."""
    content = {"delta": {"content": text}} if ask.chat else {"text": text}
    choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
    return {**_frame(ask, created_s), "choices": [choice]}


def usage_chunk(ask: Ask, created_s: float, num_tokens: int) -> dict[str, Any]:
    """The last part of a stream that was asked to count."""
    return {**_frame(ask, created_s), "choices": [], "usage": usage(ask, num_tokens)}


def usage(ask: Ask, num_tokens: int) -> dict[str, int]:
    """Token counts of an answer."""
    prompt = ask.request.prompt_tokens
    return {"prompt_tokens": prompt, "completion_tokens": num_tokens, "total_tokens": prompt + num_tokens}


def event(document: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def words(ask: Ask, first: int, count: int) -> str:
    """Words of an answer from token ``first`` on: one word a token."""
    said = [f" w{number}" for number in range(first, first + count)]
    if ask.letter and first == 0 and said:
        said[0] = f" {ask.letter}"
    return "".join(said)


def _frame(ask: Ask, created_s: float) -> dict[str, Any]:
    prefix = "chatcmpl" if ask.chat else "cmpl"
    return {
        "id": f"{prefix}-{ask.request.id}",
        "object": ask.object_name,
        "created": int(created_s),
        "model": ask.model,
    }


def _last_text(document: Mapping[str, Any], chat: bool) -> str:
    """What is asked last; empty for token ids. The body has been found right."""
    if chat:
        messages = document["messages"]
        return _text(messages[-1].get("content")) if messages else ""
    prompt = document["prompt"]
    if isinstance(prompt, list) and isinstance(prompt[0], str):
        prompt = prompt[0]
    return prompt if isinstance(prompt, str) else ""


def _prompt_length(prompt: Any) -> int:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return max(1, len(prompt.split()))
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return len(prompt)
    raise BadRequest("prompt must be a text or a list of token ids, one prompt a request")


def _messages_length(messages: Any) -> int:
    if not isinstance(messages, list) or not messages or not all(isinstance(one, Mapping) for one in messages):
        raise BadRequest("messages must be a list of objects with role and content")
    return sum(TEMPLATE_TOKENS + len(_text(message.get("content")).split()) for message in messages)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _acceptance(extra: Any) -> tuple[float, ...] | None:
    given = extra.get("simulated_acceptance") if isinstance(extra, Mapping) else None
    if given is None:
        return None
    try:
        curve = tuple(float(part) for part in str(given).split(","))
    except ValueError as error:
        raise BadRequest(f"simulated_acceptance {given!r} must be numbers with commas between them") from error
    falling = all(after <= before for before, after in pairwise(curve))
    if not falling or not all(0 <= value <= 1 for value in curve):
        raise BadRequest(f"simulated_acceptance {given!r} must not increase and lie between 0 and 1")
    return curve
