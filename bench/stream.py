"""A client that requests pages and readings without pause, for `bench.convoy_bench`.

python -m bench.stream PORT
"""

import sys

from bench.client import Client

if __name__ == "__main__":
    clients = [
        Client(int(sys.argv[1]), path, keep_alive=True) for path in ("/metrics", "/api/v1/readings")
    ]
    while True:
        for client in clients:
            client.get()
