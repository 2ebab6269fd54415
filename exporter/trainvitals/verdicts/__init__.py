"""Verdicts: thresholds, states, and causes of death."""
