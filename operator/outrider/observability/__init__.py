"""Dashboards and alerts, as values: what they ask of Prometheus, and the files that the chart carries.

Imports names and nothing that runs: no metric is made here.
"""
