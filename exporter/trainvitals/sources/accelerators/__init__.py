"""The machine's accelerators: one typed reading for each device, the same for every vendor.

`source.py` is the way in; `vendors.py` lists the vendors; each vendor's reader has a file of its
own and runs in a child process.
"""
