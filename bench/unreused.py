"""The exporter without reuse of readings, so that thousands of readings take minutes and not hours.

python -m bench.unreused serve --web.listen-address=127.0.0.1:9200
"""

import sys

from trainvitals.cli import main
from trainvitals.metrics import runner as scrape

if __name__ == "__main__":
    scrape.REUSE_SECONDS = -1.0
    sys.exit(main())
