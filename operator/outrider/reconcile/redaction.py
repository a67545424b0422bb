"""Values that look like secrets, masked in text that engines wrote before it reaches a status, an event or a log.

By their looks alone: the values of Secrets are never read, so nothing here compares against them. What masks too much
costs a word of a message; what masks too little costs a token.
"""

from __future__ import annotations

import re

MASK = "***"

_NAMED = r"(?:token|api[_-]?key|access[_-]?key|secret|passw(?:or)?d|credentials?|authorization|signature)"
_QUOTES = r"[\"'\[(]"
_PATTERNS = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S), MASK),
    # scheme://user:password@host
    (re.compile(r"(?<=://)[^/\s@]+(?=@)"), MASK),
    # Bearer and Basic, as headers are logged
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.I), rf"\1 {MASK}"),
    # HF_TOKEN=…, token=…, &X-Amz-Signature=…, 'api_key': ['…'], --api-key …; "tokens=3" is a number of tokens
    (re.compile(rf"({_NAMED}[\"']?\s*=\s*{_QUOTES}*)(?!\*)[^\s\"'&,;)\]]+", re.I), rf"\1{MASK}"),
    (re.compile(rf"({_NAMED}[\"']?\s*:\s*{_QUOTES}*)(?!\*|bearer\b|basic\b)[^\s\"'&,;)\]]{{6,}}", re.I), rf"\1{MASK}"),
    # A flag begins at its first dash and is short: without these bounds a line of dashes takes its square of steps.
    (
        re.compile(rf"((?<![\w-])--[\w-]{{0,64}}{_NAMED}[\"']?[,\s]+{_QUOTES}*)(?![-*])[^\s\"'&,;)\]]+", re.I),
        rf"\1{MASK}",
    ),
    # What issuers begin their tokens with: Hugging Face, OpenAI and its like, GitHub, GitLab, Slack, AWS, NVIDIA
    (re.compile(r"\b(?:hf|api_org|sk|gh[opsur]|github_pat|glpat|xox[abprs]|nvapi)[_-][\w-]{6,}"), MASK),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"), MASK),
    (re.compile(r"\beyJ[\w-]{6,}(?:\.[\w-]+){1,2}"), MASK),  # a JSON Web Token
)


def masked(text: str) -> str:
    """The text with everything that looks like a secret replaced by `MASK`; masking it again changes nothing."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def first_words(text: str, limit: int) -> str:
    """The beginning of a text in at most ``limit`` characters and one line, masked."""
    said = " ".join(masked(text).split())
    return said if len(said) <= limit else said[: limit - 1] + "…"


def last_words(text: str, limit: int) -> str:
    """The end of a log in at most ``limit`` characters and one line, masked, from the beginning of a line if one of
    those that fit begins there."""
    lines = [line for line in (" ".join(line.split()) for line in masked(text).splitlines()) if line]
    said = " | ".join(lines)
    if len(said) <= limit:
        return said
    tail = said[-(limit - 1) :]
    _, separator, whole = tail.partition(" | ")
    return "…" + (whole if separator else tail)
