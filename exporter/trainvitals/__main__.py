"""Entry point of `python -m trainvitals`, which is equivalent to the command `trainvitals`."""

import sys

from trainvitals.cli import main

if __name__ == "__main__":
    sys.exit(main())
