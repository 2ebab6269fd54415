"""Draw what a run used: `trainvitals plot`, of the first epoch where no file is named."""

import sys

try:
    from trainvitals.cli import main
except ModuleNotFoundError as error:
    python = sys.executable
    sys.stderr.write(f"no {error.name} here: in the checkout, {python} -m pip install '.[plot]'\n")
    sys.exit(2)

sys.exit(main(["plot", *(sys.argv[1:] or ["resource_logs/epoch_1.csv"])]))
