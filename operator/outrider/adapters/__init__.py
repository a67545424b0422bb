"""The only places that talk to neighbours: the API server, Prometheus, and the engines' admin ports.

Each translates its library's errors into those of `outrider.errors`, takes and returns plain values, and gives every
call a time limit. Nothing here decides anything.
"""
