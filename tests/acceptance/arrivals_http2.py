"""HTTP/2 inside TLS for the origin that keeps arrivals: bytes in, requests out, without a thread for each connection."""

from __future__ import annotations

import socket
import ssl

import origin_http2
from arrivals import REST, Reply
from origin_http2 import frames

_INTERNAL_ERROR = frames.CODES.index("INTERNAL_ERROR").to_bytes(4, "big")


class Secure(origin_http2.Connection):
    """One connection. A request that is not answered has its stream reset."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        super().__init__(connection)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._ready = False

    def send(self, data: bytes) -> None:
        self._tls.write(data)
        self._flush()

    def take(self, data: bytes) -> list[tuple[int, int, bytes]]:
        self._incoming.write(data)
        try:
            if not self._ready:
                self._tls.do_handshake()
                self._ready = True
                self.begin()
            while data := self._tls.read(65_536):
                self.feed(data)
        except ssl.SSLWantReadError:
            pass
        self._flush()
        waiting, self.waiting = self.waiting, []
        return [self._request(number) for number in waiting]

    def waits(self, stream: int) -> bool:
        return self.socket.fileno() >= 0 and self.streams[stream].reset is None

    def reply(self, stream: int, reply: Reply) -> bool:
        if self.streams.pop(stream).reset is not None:
            return True
        if reply is Reply.NONE:
            self.send(frames.frame(frames.RST_STREAM, 0, stream, _INTERNAL_ERROR))
            return True
        fields = [(b":status", str(reply.value).encode())]
        if reply is Reply.TIRED:
            fields.append((b"retry-after", str(REST).encode()))
        page = reply is Reply.PAGE
        fields.append((b"content-length", b"3" if page else b"0"))
        head = frames.head(stream, fields, frames.END_HEADERS | (0 if page else frames.END_STREAM))
        self.send(head + (frames.frame(frames.DATA, frames.END_STREAM, stream, b"ok\n") if page else b""))
        return True

    def _request(self, number: int) -> tuple[int, int, bytes]:
        fields = dict(self.streams[number].head or [])
        return number, int(fields[b":authority"].removeprefix(b"h").split(b".", 1)[0]), fields[b":path"]

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self.socket.send(data)
