"""Derives a verdict on a death from its evidence. The modules do not access the machine."""
