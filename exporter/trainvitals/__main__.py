"""`python -m trainvitals` is the same as the command `trainvitals`."""

import sys

from trainvitals.cli import main

if __name__ == "__main__":
    sys.exit(main())
