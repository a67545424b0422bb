"""Outrider: an operator that steers speculative decoding and replicas of inference services while they serve."""

__version__ = "0.1.0"
