#!/bin/sh
here="$(dirname "$0")/.." && PATH="$here/.venv/bin:$PATH"
command -v trainvitals >/dev/null || { echo "trainvitals is not installed: cd $here && python3 -m venv .venv && .venv/bin/pip install ." >&2; exit 2; }
exec trainvitals top "$@"
