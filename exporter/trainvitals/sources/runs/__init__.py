"""Training runs: the files that trainers write, whether trainers are alive, and how they ended."""
