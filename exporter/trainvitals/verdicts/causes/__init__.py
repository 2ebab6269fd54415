"""Verdicts on deaths, based only on the evidence: these modules do not access the machine."""
