"""The custom resource: its fields, its rules, its status, and the CRD that is generated from them.

Values only: no Kubernetes client, no file (but for the command that writes the CRD), no clock. The spec belongs to the
user, so nothing here changes one; what a user leaves out is filled in by `outrider.api.defaults`, in one place.
"""

from __future__ import annotations

GROUP = "serving.outrider.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "SpeculativeInferenceService"
PLURAL = "speculativeinferenceservices"
