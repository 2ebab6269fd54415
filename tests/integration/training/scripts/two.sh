#!/bin/sh
# Two trainings, one after the other; the second one ends as it is asked to.
set -e
SHAPE_END=finish TRAINVITALS_RUN=first "$SHAPE_PYTHON" "$(dirname "$0")/gan.py"
exec "$SHAPE_PYTHON" "$(dirname "$0")/amp_accumulation.py"
