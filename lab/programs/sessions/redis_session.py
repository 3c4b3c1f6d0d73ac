"""Redis or Valkey by its socket: a key for each number; with `module`, one key, whose type and commands are numbers_module.c's."""

import socket
import sys

from protocol import PAYLOAD, retried, serve


class Store:
    def __init__(self, path: str, module: str = ""):
        self.has_module = bool(module)
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(path)
        self.answers = self.connection.makefile("rb")
        # It answers so while it reads its file, too; a paused one, whose socket has the name of its successor's, does not.
        self.connection.settimeout(3)
        self._ask("PING")
        self.connection.settimeout(None)

    def _ask(self, *words: str) -> list[bytes]:
        """The answer's lines."""
        said = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        self.connection.sendall(f"*{len(words)}\r\n{said}".encode())
        line = self.answers.readline().rstrip(b"\r\n")
        if not line or line.startswith(b"-"):
            raise RuntimeError(f"{words[0]}: {line!r}")
        if not line.startswith(b"*"):
            return [line]
        found = []
        for _ in range(int(line[1:])):
            length = int(self.answers.readline()[1:])
            found.append(self.answers.read(length + 2)[:-2])
        return found

    def write(self, number: int) -> None:
        if self.has_module:
            self._ask("NUMBERS.ADD", "lab", str(number), PAYLOAD)
        else:
            self._ask("SET", str(number), PAYLOAD)

    def numbers(self) -> list[int]:
        command = ["NUMBERS.ALL", "lab"] if self.has_module else ["KEYS", "*"]
        return [int(key) for key in self._ask(*command)]


serve(retried(lambda: Store(*sys.argv[1:])))
