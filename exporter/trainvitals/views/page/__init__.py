"""The live page at `/`: the current state of the machine, refreshed once a second."""
