"""Reference pages, generated from what the code itself goes by, so that none can say anything else."""
