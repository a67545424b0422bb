"""What a user's trigger asks of Prometheus, as far as one can tell without asking: whether it is an average already."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`'  # a text, which may hold anything
    r"|(?P<average>\bavg\s*(?=\(|by\b|without\b))"
    r"|(?P<call>[A-Za-z_:][A-Za-z0-9_:]*\s*\((?:[^()]*\)\s*\()?)"  # a function or aggregation, perhaps with its labels
    r"|(?P<opening>[({\[])"
    r"|(?P<closing>[)}\]])"
)


def is_average(query: str) -> bool:
    """Whether a query answers with an average: ``avg`` stands in it, and not inside of another function or aggregation.

    ``sum(avg by (pod) (x))`` is a sum, ``avg(sum by (pod) (x)) * 2`` an average.
    """
    depth: list[bool] = []
    for token in _TOKEN.finditer(query):
        if token["average"] and not any(depth):
            return True
        if token["call"]:
            depth.append(True)
        elif token["opening"]:
            depth.append(False)
        elif token["closing"] and depth:
            depth.pop()
    return False
