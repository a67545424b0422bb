"""What the operator's image holds, and how fast it starts."""
