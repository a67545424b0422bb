"""What replicas cost and bring under Outrider's target and under targets that stay: ``make bench-capacity``."""
