"""A simulated speculating engine: in virtual time for benchmarks, in real time for the local cluster.

It takes its step times from measured rows (`profile`), never from `outrider.core.latency`: the estimator must not be
tested on its own formula. From the operator it knows the schedule, the value `Series` and the metric names, nothing
else.
"""
