"""PostgreSQL by its socket, with its protocol's simple queries: a row for each number, each a transaction."""

import socket
import struct
import sys

from protocol import PAYLOAD, retried, serve


class Store:
    def __init__(self, path: str):
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(path)
        self.answers = self.connection.makefile("rb")
        greeting = struct.pack("!I", 196608) + b"user\0lab\0database\0postgres\0\0"
        self.connection.sendall(struct.pack("!I", len(greeting) + 4) + greeting)
        self._rows()
        self._query("CREATE TABLE IF NOT EXISTS lab (n bigint PRIMARY KEY, payload text)")

    def _query(self, text: str) -> list[bytes]:
        said = text.encode() + b"\0"
        self.connection.sendall(b"Q" + struct.pack("!I", len(said) + 4) + said)
        return self._rows()

    def _rows(self) -> list[bytes]:
        """The first column of each row, when the server is ready for the next query."""
        found, error = [], b""
        while True:
            head = self.answers.read(5)
            if len(head) < 5:
                raise RuntimeError("the server closed the connection")
            kind, length = struct.unpack("!cI", head)
            body = self.answers.read(length - 4)
            if kind == b"D":
                (size,) = struct.unpack("!i", body[2:6])
                found.append(body[6 : 6 + size])
            elif kind == b"E":
                error = body
                # One that ends the connection is followed by nothing.
                if b"FATAL" in body or b"PANIC" in body:
                    raise RuntimeError(repr(error))
            elif kind == b"Z":
                if error:
                    raise RuntimeError(repr(error))
                return found

    def write(self, number: int) -> None:
        self._query(f"INSERT INTO lab VALUES ({number}, '{PAYLOAD}')")

    def numbers(self) -> list[int]:
        return [int(row) for row in self._query("SELECT n FROM lab")]


serve(retried(lambda: Store(sys.argv[1])))
