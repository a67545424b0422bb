"""The half of Outrider that runs inside vLLM: it takes schedules on the admin port and reports what a controller needs.

Standard library and `outrider.core.schedule` only, besides vLLM itself, which one module alone touches.
"""
