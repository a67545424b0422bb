"""Tests of Outrider, and the local cluster that they share."""
