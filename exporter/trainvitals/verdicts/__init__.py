"""Verdicts: thresholds, states, problems, and the causes of container and process exits."""
