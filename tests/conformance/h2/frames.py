"""HTTP/2 frames by hand: a writer that sends anything, and a strict reader that reports what RFC 9113 forbids."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import struct
import time
from collections.abc import Callable

import compression

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TYPES = {
    "DATA": 0, "HEADERS": 1, "PRIORITY": 2, "RST_STREAM": 3, "SETTINGS": 4, "PUSH_PROMISE": 5, "PING": 6, "GOAWAY": 7,
    "WINDOW_UPDATE": 8, "CONTINUATION": 9, "PRIORITY_UPDATE": 16,
}  # fmt: skip
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 1, 1, 4, 8, 0x20
FLAGS = {"END_STREAM": 1, "ACK": 1, "END_HEADERS": 4, "PADDED": 8, "PRIORITY": 0x20}
CODES = [
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
]  # fmt: skip
SETTING_NAMES = {
    "HEADER_TABLE_SIZE": 1, "ENABLE_PUSH": 2, "MAX_CONCURRENT_STREAMS": 3, "INITIAL_WINDOW_SIZE": 4,
    "MAX_FRAME_SIZE": 5, "MAX_HEADER_LIST_SIZE": 6, "ENABLE_CONNECT_PROTOCOL": 8, "NO_RFC7540_PRIORITIES": 9,
}  # fmt: skip
WINDOW = 65_535
FRAME = 16_384
# Fields of one connection: never in HTTP/2 (RFC 9113 8.2.2).
HOP_BY_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}

Field = tuple[bytes, bytes]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """A frame; `length` lies about its payload, and bit 31 of `stream` is the reserved one."""
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(pairs: list[tuple[int, int]], flags: int = 0) -> bytes:
    return frame(SETTINGS, flags, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def block(fields: list[Field]) -> bytes:
    """Fields as literals that leave no trace in any table."""
    return b"".join(compression.literal(name, value) for name, value in fields)


def head(stream: int, fields: list[Field], flags: int = END_STREAM | END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, block(fields))


def get(authority: str, path: str = "/", scheme: str = "https", method: str = "GET") -> list[Field]:
    """The pseudo-fields of a request."""
    texts = ((":method", method), (":scheme", scheme), (":authority", authority), (":path", path))
    return [(name.encode(), value.encode()) for name, value in texts]


@dataclasses.dataclass
class Stream:
    """What came on a stream."""

    # The final head, interim ones, and the trailers.
    head: list[Field] | None = None
    interim: list[list[Field]] = dataclasses.field(default_factory=list)
    trailers: list[Field] | None = None
    body: bytes = b""
    ended: bool = False
    reset: int | None = None
    # What the client may still send.
    window: int = 0

    @property
    def status(self) -> int:
        return int(dict(self.head or [(b":status", b"0")])[b":status"])

    def values(self, name: str) -> list[bytes]:
        return [value for key, value in self.head or [] if key == name.encode()]

    def one(self, name: str) -> str:
        return b", ".join(self.values(name)).decode("latin-1")


class Wire:
    """One connection, in one thread: it reads while it waits for something.

    It answers SETTINGS and PING of the other side, and sends nothing else by itself.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.streams: dict[int, Stream] = {}
        self.settings: dict[int, int] = {}
        self.acks = 0
        self.pongs: list[bytes] = []
        self.goaway: tuple[int, int] | None = None
        self.ended = False
        # Bytes that came before the connection ended, if they were not frames.
        self.raw = b""
        self.window = WINDOW
        # What the other side did that RFC 9113 does not allow.
        self.problems: list[str] = []
        self.largest = FRAME
        self.decoder = compression.Decoder()
        self._block: tuple[int, int, bytes] | None = None
        self._first = True
        self._buffer = b""
        self.answers = True

    def send(self, data: bytes) -> None:
        """Sends bytes; that the other side has closed shows when it is read."""
        with contextlib.suppress(OSError):
            self.socket.settimeout(10)
            self.socket.sendall(data)

    def begin(self, pairs: list[tuple[int, int]] | None = None) -> None:
        """Preface and SETTINGS."""
        self.send(PREFACE + settings(pairs or []))

    def stream(self, number: int) -> Stream:
        initial = self.settings.get(SETTING_NAMES["INITIAL_WINDOW_SIZE"], WINDOW)
        return self.streams.setdefault(number, Stream(window=initial))

    def until(self, holds: Callable[[], object], seconds: float = 5) -> bool:
        """Reads until the condition holds, the connection has ended, or the time is over."""
        end = time.monotonic() + seconds
        while not holds():
            left = end - time.monotonic()
            if self.ended or left <= 0:
                return bool(holds())
            self._receive(left)
        return True

    def rest(self, seconds: float) -> None:
        """Reads for that duration."""
        self.until(lambda: False, seconds)

    def upload(self, number: int, body: bytes, last: bool = True, size: int = FRAME, pad: int | None = None) -> bool:
        """Sends a body as the windows allow; whether it could be sent."""
        stream, at, more = self.stream(number), 0, 0 if pad is None else pad + 1
        while at < len(body):
            room = lambda: min(self.window, stream.window) - more  # noqa: E731
            if not self.until(lambda: room() > 0 or stream.ended or stream.reset is not None) or room() <= 0:
                return False
            part = body[at : at + min(room(), size)]
            at += len(part)
            payload, flags = (part, 0) if pad is None else (bytes([pad]) + part + bytes(pad), PADDED)
            stream.window -= len(payload)
            self.window -= len(payload)
            self.send(frame(DATA, flags | (END_STREAM if last and at == len(body) else 0), number, payload))
        return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def _receive(self, seconds: float) -> None:
        try:
            self.socket.settimeout(max(seconds, 0.001))
            data = self.socket.recv(65_536)
        except (TimeoutError, ssl.SSLWantReadError):
            return
        except OSError:
            data = b""
        self.feed(data)

    def feed(self, data: bytes) -> None:
        """Takes bytes of the other side; none are its end."""
        if not data:
            self.ended = True
            self.raw = self._buffer
            return
        self._buffer += data
        while len(self._buffer) >= 9 and not (self._first and self._buffer[3] != SETTINGS):
            size = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + size:
                break
            kind, flags = self._buffer[3:5]
            number = int.from_bytes(self._buffer[5:9], "big") & 0x7FFF_FFFF
            payload, self._buffer = self._buffer[9 : 9 + size], self._buffer[9 + size :]
            self._first = False
            try:
                self._take(kind, flags, number, payload)
            except (compression.CompressionError, struct.error, IndexError) as error:
                self.problems.append(f"a frame of type {kind} that cannot be read: {error!r}")
        self.raw = self._buffer

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if len(payload) > self.largest:
            self.problems.append(f"a frame of {len(payload)} bytes, {self.largest} are allowed")
        if self._block and (kind, number) != (CONTINUATION, self._block[0]):
            self.problems.append(f"a frame of type {kind} inside a field block")
        if kind == SETTINGS:
            self._take_settings(flags, payload)
        elif kind == PING:
            if flags & ACK:
                self.pongs.append(payload)
            elif self.answers:
                self.send(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            last, code = struct.unpack(">II", payload[:8])
            self.goaway = (last & 0x7FFF_FFFF, code)
        elif kind == WINDOW_UPDATE:
            (more,) = struct.unpack(">I", payload)
            if number:
                self.stream(number).window += more
            else:
                self.window += more
        elif kind == RST_STREAM:
            (self.stream(number).reset,) = struct.unpack(">I", payload)
        elif kind == DATA:
            self._take_data(flags, number, payload)
        elif kind in (HEADERS, CONTINUATION):
            self._take_block(kind, flags, number, payload)
        elif kind == PUSH_PROMISE:
            self.problems.append("a push")

    def _take_settings(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            self.acks += 1
            return
        key = SETTING_NAMES["INITIAL_WINDOW_SIZE"]
        before = self.settings.get(key, WINDOW)
        for at in range(0, len(payload), 6):
            name, value = struct.unpack(">HI", payload[at : at + 6])
            self.settings[name] = value
        for stream in self.streams.values():
            stream.window += self.settings.get(key, WINDOW) - before
        if self.answers:
            self.send(settings([], ACK))

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        stream = self._open(number, "DATA")
        if stream.head is None:
            self.problems.append(f"DATA before the head on {number}")
        stream.body += payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
        stream.ended |= bool(flags & END_STREAM)

    def _take_block(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == HEADERS:
            if flags & PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            if flags & WITH_PRIORITY:
                payload = payload[5:]
            self._block = (number, flags, payload)
        elif self._block:
            self._block = (number, self._block[1] | flags & END_HEADERS, self._block[2] + payload)
        if not self._block or not self._block[1] & END_HEADERS:
            return
        (_, flags, whole), self._block = self._block, None
        self._take_fields(number, bool(flags & END_STREAM), self.decoder.fields(whole))

    def _take_fields(self, number: int, last: bool, fields: list[Field]) -> None:
        stream = self._open(number, "HEADERS")
        self.problems += [f"the field {name!r}" for name, _ in fields if name != name.lower() or name in HOP_BY_HOP]
        status = dict(fields).get(b":status")
        if stream.head is not None:
            stream.trailers = fields
            if status or not last:
                self.problems.append(f"trailers with :status, or that do not end stream {number}")
        elif status is None or fields[0][0] != b":status":
            self.problems.append(f"a head that does not begin with :status on {number}")
        elif status.startswith(b"1") and not last:
            stream.interim.append(fields)
        else:
            stream.head = fields
        stream.ended |= last

    def _open(self, number: int, what: str) -> Stream:
        if not number % 2 or (number not in self.streams):
            self.problems.append(f"{what} on stream {number}, which nobody opened")
        stream = self.stream(number)
        if stream.ended or stream.reset is not None:
            self.problems.append(f"{what} on stream {number} after its end")
        return stream
