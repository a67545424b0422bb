"""Timings of what runs often. Never part of a test: a slow machine is no defect."""
