"""The benchmark of decisions: Outrider beside every rule that people use, on the simulator's measured rows."""
