"""The machine's accelerators: one typed reading for each device, the same for every vendor.

`source.py` is the entry point; `vendors.py` lists the vendors; each vendor's reader has its own
file; `driver.py` decides whether it runs on a thread or in a child process.
"""
