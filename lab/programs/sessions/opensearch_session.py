"""OpenSearch: a document for each number, in one shard."""

import http.client
import json
import sys

from protocol import PAYLOAD, retried, serve

# Documents in an answer: no more are given.
MANY = 10_000
# Of HTTP: no success.
NOT_ACKNOWLEDGED = 300


class Store:
    def __init__(self, port: str, *small: str):
        # The log's generations, and flushes, which end all but the last one.
        sizes = {"generation_threshold_size": "16kb", "flush_threshold_size": "128kb"} if small else {}
        settings = {"number_of_shards": 1, "number_of_replicas": 0, "translog": {"durability": "request", **sizes}}
        mappings = {"properties": {"n": {"type": "long"}, "payload": {"type": "keyword", "index": False, "doc_values": False}}}
        self.connection = retried(lambda: self._connected(port))
        made, answer = self._ask("PUT", "/lab", {"settings": settings, "mappings": mappings})
        if made >= NOT_ACKNOWLEDGED and answer["error"]["type"] != "resource_already_exists_exception":
            raise SystemExit(f"no index: {answer}")
        health, answer = self._ask("GET", "/_cluster/health/lab?wait_for_status=yellow&timeout=60s")
        if health >= NOT_ACKNOWLEDGED:
            raise SystemExit(f"the shard does not start: {answer}")

    @staticmethod
    def _connected(port: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
        connection.connect()
        return connection

    def _ask(self, method: str, path: str, body: dict | None = None) -> tuple[int, dict]:
        text = None if body is None else json.dumps(body)
        self.connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def write(self, number: int) -> None:
        status, answer = self._ask("PUT", f"/lab/_doc/{number}", {"n": number, "payload": PAYLOAD})
        if status >= NOT_ACKNOWLEDGED:
            raise SystemExit(f"{number} was refused: {answer}")

    def numbers(self) -> list[int]:
        """All that a search finds, MANY at a time."""
        self._ask("POST", "/lab/_refresh")
        found: list[int] = []
        while True:
            after = {"search_after": found[-1:]} if found else {}
            query = {"size": MANY, "sort": [{"n": "asc"}], "_source": False, **after}
            status, answer = self._ask("POST", "/lab/_search", query)
            if status >= NOT_ACKNOWLEDGED or answer["_shards"]["failed"]:
                raise SystemExit(f"no search: {answer}")
            hits = answer["hits"]["hits"]
            if not hits:
                return found
            found += [hit["sort"][0] for hit in hits]


serve(Store(*sys.argv[1:]))
