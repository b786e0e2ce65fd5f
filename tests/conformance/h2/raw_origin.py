"""The origin of one row: a TLS server that records the bytes of its connections, and reads them strictly."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading

# Asked for to see that a connection still works; it is not a request of the row.
ALIVE = b"/alive"
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/1\.1")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*")
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Message:
    """A request as it arrived: line, fields with names in lower case, body without the chunked coding, trailers."""

    def __init__(self, line: bytes, fields: list[tuple[bytes, bytes]]) -> None:
        self.line, self.fields = line, fields
        self.body = b""
        self.trailers: list[tuple[bytes, bytes]] = []
        self.whole = False

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key == name]

    @property
    def alive(self) -> bool:
        return self.line.split(b" ")[1] == ALIVE


class Broken(ValueError):
    """Bytes that are not strict HTTP/1.1."""


def read(data: bytes) -> tuple[list[Message], bytes]:
    """The requests in what a connection sent, the last one maybe not whole, and the bytes of a head that is not."""
    found: list[Message] = []
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end:
            return found, data
        lines = head.split(b"\r\n")
        if not _LINE.fullmatch(lines[0]):
            raise Broken(f"the request line {lines[0]!r}")
        message = Message(lines[0], [_field(line) for line in lines[1:]])
        found.append(message)
        data = _take_body(message, rest)
        if not message.whole:
            break
    return found, b""


def _field(line: bytes) -> tuple[bytes, bytes]:
    matched = _FIELD.fullmatch(line)
    if not matched:
        raise Broken(f"the field {line!r}")
    return matched[1].lower(), matched[2]


def _take_body(message: Message, data: bytes) -> bytes:
    coding, lengths = message.values(b"transfer-encoding"), message.values(b"content-length")
    if coding:
        if lengths or [one.lower() for one in coding] != [b"chunked"]:
            raise Broken(f"the framing {coding} with {lengths}")
        return _take_chunks(message, data)
    if len(lengths) > 1 or (lengths and not lengths[0].isdigit()):
        raise Broken(f"the lengths {lengths}")
    size = int(lengths[0]) if lengths else 0
    message.body, message.whole = data[:size], len(data) >= size
    return data[size:]


def _take_chunks(message: Message, data: bytes) -> bytes:
    while True:
        line, end, rest = data.partition(b"\r\n")
        if not end:
            return b""
        if not re.fullmatch(rb"[0-9a-fA-F]{1,16}", line):
            raise Broken(f"the chunk size {line!r}")
        size = int(line, 16)
        if size == 0:
            break
        message.body += rest[:size]
        if len(rest) < size + 2:
            return b""
        if rest[size : size + 2] != b"\r\n":
            raise Broken("a chunk that does not end with its size")
        data = rest[size + 2 :]
    while rest:
        line, end, rest = rest.partition(b"\r\n")
        if not end:
            return b""
        if not line:
            message.whole = True
            return rest
        message.trailers.append(_field(line))
    return b""


class Origin:
    """A server on a port of its own. It answers each whole request with `answer`; `manner` changes that: `hang` never
    answers, `early` answers when it has the head, `close` ends the connection after its answer, `drop` without one."""

    def __init__(self, context: ssl.SSLContext | None, answer: bytes, manner: str) -> None:
        self._context, self._answer, self._manner = context, answer or _OK, manner
        self._server = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._server.getsockname()[1]
        # What each connection has sent so far, and whether it has ended.
        self.received: list[bytearray] = []
        self.ended: list[bool] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def requests(self) -> tuple[list[Message], list[str]]:
        """The requests of all connections but those that only ask whether it is alive, and what is wrong with them."""
        found: list[Message] = []
        problems: list[str] = []
        for received in list(self.received):
            try:
                messages, rest = read(bytes(received))
            except Broken as error:
                problems.append(f"the origin received {bytes(received[:400])!r}: {error}")
                continue
            found += [message for message in messages if not message.alive]
            if rest:
                problems.append(f"the origin received a part of a head: {rest[:200]!r}")
        return found, problems

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        received, number = bytearray(), len(self.received)
        with contextlib.suppress(OSError), connection:
            connection.settimeout(20)
            if self._context:
                connection = self._context.wrap_socket(connection, server_side=True)
            self.received.append(received)
            self.ended.append(False)
            self._answer_all(connection, received)
            # A body that ends with its connection is whole only if TLS says so.
            if self._context and self._manner == "close":
                connection.unwrap()
        if number < len(self.ended):
            self.ended[number] = True

    def _answer_all(self, connection: socket.socket, received: bytearray) -> None:
        answered = 0
        while data := connection.recv(65_536):
            received += data
            try:
                messages, _ = read(bytes(received))
            except Broken:
                return
            for message in messages[answered:]:
                if not message.whole and self._manner != "early":
                    continue
                answered += 1
                if message.alive:
                    connection.sendall(_OK)
                elif self._manner != "hang":
                    if self._manner != "drop":
                        head = message.line.startswith(b"HEAD ") and self._answer is _OK
                        connection.sendall(_OK[:-2] if head else self._answer)
                    if self._manner in ("close", "drop"):
                        return
