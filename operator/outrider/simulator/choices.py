"""Answers to multiple-choice questions. A simulated engine knows nothing, so it reads: the option of whose words most
stand in the text before the options.

Questions have the form that MMLU's have: text, options as lines ``A. …`` to ``D. …``, and ``Answer:`` at the end.
"""

from __future__ import annotations

import re
from random import Random

END = "Answer:"
_OPTION = re.compile(r"^([A-Z])[.)] +(\S.*)$", re.MULTILINE)
_WORD = re.compile(r"\w+")


def chosen(prompt: str, careless: float = 0.0) -> str:
    """The letter of an option; empty for what is no such question.

    Of questions, the share ``careless``, 0 to 1, gets the option after the right one: always the same questions, as
    with an engine that decodes greedily.
    """
    if not prompt.rstrip().endswith(END):
        return ""
    options = list(_OPTION.finditer(prompt))
    first = max((number for number, one in enumerate(options) if one[1] == "A"), default=None)
    if first is None:
        return ""
    options = options[first:]
    read = _words(prompt[: options[0].start()].rpartition("\n\n")[2])
    found = max(range(len(options)), key=lambda number: _share(_words(options[number][2]), read))
    if Random(prompt).random() < careless:
        found = (found + 1) % len(options)
    return options[found][1]


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _share(words: set[str], read: set[str]) -> float:
    return len(words & read) / len(words) if words else 0.0
