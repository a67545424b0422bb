"""Outrider on a real GPU: a real vLLM started by the rendered command line, steered by the real control pass.

The machine needs vLLM 0.33.0 and this project on ``PYTHONPATH``; nothing is downloaded. Weights are dummies of
Llama-3.1-8B's shape with a one-layer EAGLE drafter; acceptance is set, so a shift of it cannot be played here. To
``compare`` what was measured with the simulator takes neither.
"""
