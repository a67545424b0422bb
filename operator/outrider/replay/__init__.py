"""Replaying a resource against the simulator in virtual time: the operator's decisions without a cluster.

A resource is parsed, resolved and rendered by the operator's own functions; the engines, their load and the clock are
the simulator's. Nothing here reads the wall clock or talks to a neighbour.
"""
