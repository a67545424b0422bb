"""One K by roll-out over a day, beside each K that never changes."""
