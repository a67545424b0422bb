"""Errors of the step-time model on measured and published data, held out."""
