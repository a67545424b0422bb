"""The benchmark of the analysis of candidates: how often it errs, on made-up fleets whose truth is known."""
