"""Several services on the GPUs of one quota, in virtual time.

Each has its own load, engines and control law, as when it is replayed alone. How many replicas each may have is worked
out by the operator's own functions (`outrider.reconcile.demands`, `outrider.reconcile.sharing`).
"""
