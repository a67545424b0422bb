"""The two flows: objects (resource to children) and control (metrics to schedule and target), over one registry of
services.

Adapters arrive as arguments. Each pass looks again at what is: our own status is output, never an input.
"""
