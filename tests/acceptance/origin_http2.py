"""The server's side of HTTP/2: connections that collect requests, and those of the test site, which answer from `pages.py`."""

from __future__ import annotations

import pathlib
import socket
import ssl
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance" / "h2"))

import frames  # noqa: E402
from pages import Page  # noqa: E402

# Larger than any body of the site, so that nothing that a client sends has to wait.
WINDOW = 0x3FFF_FFFF
PAUSE = 0.05
# Fields that belong to a connection of HTTP/1.1.
HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "trailer")


class Connection(frames.Wire):
    """The server's side of a connection: requests arrive where a client has responses."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        # Streams whose requests are whole, and not answered yet.
        self.waiting: list[int] = []
        self._preface = frames.PREFACE

    def begin(self, pairs: list[tuple[int, int]] | None = None) -> None:
        """SETTINGS, and windows that no body fills."""
        initial = frames.SETTING_NAMES["INITIAL_WINDOW_SIZE"]
        increment = (WINDOW - frames.WINDOW).to_bytes(4, "big")
        more = frames.frame(frames.WINDOW_UPDATE, 0, 0, increment)
        self.send(frames.settings([(initial, WINDOW), *(pairs or [])]) + more)

    def feed(self, data: bytes) -> None:
        expected = self._preface[: len(data)]
        if data[: len(expected)] != expected:
            raise ConnectionError(f"{data[:24]!r} is no preface of HTTP/2")
        self._preface = self._preface[len(expected) :]
        if not data or data[len(expected) :]:
            super().feed(data[len(expected) :])

    def _open(self, number: int, what: str) -> frames.Stream:
        return self.stream(number)

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        super()._take_data(flags, number, payload)
        self._end(number)

    def _take_fields(self, number: int, last: bool, fields: list[frames.Field]) -> None:
        stream = self.stream(number)
        if stream.head is None:
            stream.head = fields
        stream.ended |= last
        self._end(number)

    def _end(self, number: int) -> None:
        if self.stream(number).ended:
            self.waiting.append(number)


class Pages(Connection):
    """A connection that answers with pages of the site."""

    def __init__(self, connection: ssl.SSLSocket, answer: Callable[[str, str, list[list[str]], int], Page]) -> None:
        """`answer` takes method, path, fields and length of the body, and returns the page."""
        super().__init__(connection)
        self._answer_of = answer

    def serve(self) -> None:
        """Answers requests until the client leaves."""
        self.begin()
        while self.until(lambda: self.waiting or self.ended, 60) and self.waiting:
            self._answer(self.waiting.pop(0))

    def _answer(self, number: int) -> None:
        stream = self.streams[number]
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in stream.head or []]
        pseudo = {name: value for name, value in fields if name.startswith(":")}
        regular = [["host", pseudo[":authority"]]] if ":authority" in pseudo else []
        regular += [[name, value] for name, value in fields if not name.startswith(":")]
        method = pseudo[":method"]
        page = self._answer_of(method, pseudo[":path"], regular, len(stream.body))
        # The client may send frames on the stream no more; `upload` looks whether it resets it.
        stream.ended = False
        self._write(number, method, page)
        del self.streams[number]

    def _write(self, number: int, method: str, page: Page) -> None:
        if page.framing == "garbage":
            # A head without :status is as malformed as bytes that are not HTTP/1.1.
            self.send(frames.head(number, [(b"malformed", b"yes")]))
            return
        bodyless = method == "HEAD" or page.status in (204, 304)
        fields = [(":status", str(page.status))]
        fields += [(name.lower(), value) for name, value in page.headers if name.lower() not in HOP_BY_HOP]
        if page.status not in (204, 304) and page.framing in ("length", "short"):
            fields.append(("content-length", str(len(page.body) + (1000 if page.framing == "short" else 0))))
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
        end = bodyless or not page.body
        self.send(frames.head(number, encoded, frames.END_HEADERS | (frames.END_STREAM if end else 0)))
        if not end:
            self._write_body(number, page)

    def _write_body(self, number: int, page: Page) -> None:
        parts = 4 if page.framing == "slow" else 1
        size = max(1, -(-len(page.body) // parts))
        trailer = page.framing == "trailer"
        for at in range(0, len(page.body), size):
            part = page.body[at : at + size]
            last = at + size >= len(page.body) and not trailer
            if not self.upload(number, part, last):
                return
            if page.framing == "slow":
                time.sleep(PAUSE)
        if trailer:
            self.send(frames.head(number, [(b"x-end", b"yes")]))
