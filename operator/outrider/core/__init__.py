"""The pure core: values in, values out.

Nothing here reads a clock, a file, the environment or the network, and nothing logs. Time is an argument, in seconds on
any one monotonic clock; missing data is a value (`Missing`); every decision carries the sentences that led to it.
"""
