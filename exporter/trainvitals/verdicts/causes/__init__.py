"""Verdicts on deaths, derived from the evidence only: these modules do not access the machine."""
