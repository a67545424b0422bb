"""What the engine can do, and how it is started: capability table, admission, graph sizes, command line and
environment.

Values only. This layer does not know the custom resource: `EngineConfig` is what it is told, with every default filled
in.
"""

from __future__ import annotations
