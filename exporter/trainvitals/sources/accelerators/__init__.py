"""Readings of the machine's accelerators, in the same format for every vendor.

`source.py` is the entry point, and `vendors.py` lists the vendors. Each vendor's reader is in a
separate file. `driver.py` decides whether a reader runs on a thread or in a child process.
"""
