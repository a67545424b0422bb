"""Objects that are passed on to Kubernetes or the engine as they stand, and judged there: only size is bounded."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

from pydantic import BeforeValidator, JsonValue, WithJsonSchema
from pydantic_core import PydanticCustomError

MAX_FIELDS = 64  # the spec of a pod has 44 (k8s.io/api 0.37.2)
RAW_DEPTH = 16  # a node affinity, the deepest part of a pod that users write, has 9


def raw(max_bytes: int) -> tuple[BeforeValidator, WithJsonSchema]:
    """Metadata of an object that is passed on as it stands: at most ``max_bytes`` of JSON, 64 fields, 16 levels deep.

    The API server keeps its fields unseen, so a reader must not trust their size; the walk ends at the first excess.
    """

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > MAX_FIELDS:
            raise PydanticCustomError("raw", "{text}", {"text": f"more than {MAX_FIELDS} fields: remove some"})
        size, waiting = 0, [(value, 1)]
        while waiting:
            item, depth = waiting.pop()
            if not isinstance(item, dict | list):
                size += _json_size(item)
            elif depth > RAW_DEPTH:
                text = f"nested more than {RAW_DEPTH} levels deep: make it flatter"
                raise PydanticCustomError("raw", "{text}", {"text": text})
            else:
                size += 2 + max(0, len(item) - 1)  # brackets and commas
                if isinstance(item, dict):
                    size += sum(_json_size(key) + 1 for key in item)
                waiting += [(inner, depth + 1) for inner in (item.values() if isinstance(item, dict) else item)]
            if size > max_bytes:
                text = f"more than {max_bytes} bytes of JSON: shorten it"
                raise PydanticCustomError("raw", "{text}", {"text": text})
        return value

    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "maxProperties": MAX_FIELDS}
    return BeforeValidator(check), WithJsonSchema(schema)


def _json_size(value: Any) -> int:
    """Bytes of a scalar in JSON; of what JSON does not know, nothing: the type refuses it."""
    if isinstance(value, float) and not math.isfinite(value):
        raise PydanticCustomError("raw", "{text}", {"text": "not a finite number, which JSON cannot hold: remove it"})
    if isinstance(value, int) and abs(value) >= 2**63:
        raise PydanticCustomError("raw", "{text}", {"text": "a whole number of more than 64 bits: make it smaller"})
    if isinstance(value, str | int | float | None):
        return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return 0


LargeRaw = Annotated[dict[str, JsonValue], *raw(32_768)]
"""An object passed on as it stands; most of a pod fits."""
Raw = Annotated[dict[str, JsonValue], *raw(8_192)]
"""An object passed on as it stands."""
