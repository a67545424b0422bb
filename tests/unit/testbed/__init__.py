"""Unit tests of the local cluster's own parts; those with a real cluster are in tests/testbed."""
