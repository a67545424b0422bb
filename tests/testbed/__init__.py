"""The local cluster: a real control plane, KEDA and Prometheus as plain processes of this machine.

`README.md` beside this file says what it is good for and what it cannot show. Tests and the demo use
`tests.testbed.cluster.Cluster`; people use ``python -m tests.testbed``.
"""
