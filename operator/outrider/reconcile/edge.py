"""The edge of a pass over one service: whatever goes wrong inside stays with that service.

The one broad catch of the operator. A fault of ours must neither end a flow that serves the whole fleet nor stay
unseen: it is logged with its trace, shown in status, and tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from outrider.errors import OperatorError
from outrider.reconcile.registry import ServiceKey

logger = logging.getLogger(__name__)


async def attempt(key: ServiceKey, work: Awaitable[None]) -> OperatorError | None:
    """Await a piece of work for a service; returns what kept it from being done, or None."""
    try:
        await work
    except OperatorError as error:
        return error
    except Exception as error:
        logger.exception("internal error", extra={"namespace": key[0], "service": key[1]})
        return OperatorError("InternalError", f"{type(error).__name__}: {error}")
    return None
