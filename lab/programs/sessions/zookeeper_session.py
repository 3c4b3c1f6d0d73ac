"""ZooKeeper: a node for each number."""

import logging
import sys

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry
from protocol import PAYLOAD, READY_LIMIT_S, serve


class Store:
    def __init__(self, port: str):
        # Not again by itself: a write that was sent twice would be refused.
        self.client = KazooClient(hosts=f"127.0.0.1:{port}", command_retry=KazooRetry(max_tries=0))
        self.client.start(timeout=READY_LIMIT_S)
        self.client.ensure_path("/lab")

    def write(self, number: int) -> None:
        self.client.create(f"/lab/{number}", PAYLOAD.encode())

    def numbers(self) -> list[int]:
        return [int(name) for name in self.client.get_children("/lab")]


logging.disable()
serve(Store(sys.argv[1]))
