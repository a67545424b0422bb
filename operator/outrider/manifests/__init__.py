"""Desired children of a service: one module a kind, each a plain function from values to a whole manifest.

No client and no comparison with what is there: manifests are applied by server-side apply, under one field manager.
Labels and annotations of children are ours alone. Those of the resource are never copied: a GitOps tool's tracking
label on a child would make that tool prune it.
"""

from __future__ import annotations
