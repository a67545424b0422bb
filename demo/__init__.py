"""The demo: the operator on the local cluster under a recorded load, watched by somebody who does not ask it."""
