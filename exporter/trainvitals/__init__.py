"""Vital signs for machines that train models.

Importing this package loads the standard library only.
"""

__version__ = "0.1.0"
