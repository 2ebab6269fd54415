"""Training runs: the files that trainers write, whether the trainers live, and how they ended."""
