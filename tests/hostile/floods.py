"""Floods of HTTP/2 frames, from clients inside intercepted tunnels. `attacks.py` has a row for each."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import pathlib
import select
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance" / "h2"))

import compression  # noqa: E402
import frames  # noqa: E402
import play  # noqa: E402
from frames import END_HEADERS, END_STREAM, Wire, frame  # noqa: E402

# How long a flood goes on, over as many connections as it needs at a time.
SECONDS = 1.5
AT_ONCE = 4
# Frames are sent in pieces of about this size.
PIECE = 60_000
CALM = "GOAWAY ENHANCE_YOUR_CALM"


@dataclasses.dataclass(frozen=True)
class Place:
    """The proxy, and the origin to which the attacker's tunnels lead."""

    port: int
    ca: pathlib.Path
    host: str

    def open(self, pairs: list[tuple[int, int]] | None = None) -> Wire:
        """A connection of HTTP/2 whose preface is sent and answered."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.set_alpn_protocols(["h2"])
        connection = play.secure(play.tunnel(self.port, self.host), self.host.rpartition(":")[0], context)
        wire = Wire(connection)
        wire.begin(pairs)
        if not wire.until(lambda: wire.settings):
            raise ConnectionError("no SETTINGS")
        return wire

    def get(self, path: str = "/", method: str = "GET") -> bytes:
        return frames.block(frames.get(self.host, path, method=method))


@dataclasses.dataclass
class Outcome:
    """How the attacker's connections and streams ended, when the last one did, and what was wrong."""

    ends: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    last_end: float = 0
    problems: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.ends += other.ends
        self.last_end = max(self.last_end, other.last_end)
        self.problems += other.problems


# Makes pieces of a flood for one connection; the wire shows what has come back.
Storm = Callable[[Place, Wire], Iterator[bytes]]


def storm(place: Place, make: Storm, must_end: bool = True) -> Outcome:
    """Floods the proxy over several connections; each that it closes is followed by another one."""
    end = time.monotonic() + SECONDS
    found = Outcome()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for one in pool.map(lambda _: _storms(place, make, end), range(AT_ONCE)):
            found.add(one)
    if must_end and not any(name.startswith("GOAWAY") or name == "closed" for name in found.ends):
        found.problems.append("no connection was closed")
    return found


def _storms(place: Place, make: Storm, end: float) -> Outcome:
    found = Outcome()
    while time.monotonic() < end:
        begin = time.monotonic()
        try:
            wire = place.open()
        except OSError as error:
            found.ends[f"refused ({type(error).__name__})"] += 1
            time.sleep(0.1)
            continue
        _push(wire, make(place, wire), end)
        found.ends[ending(wire)] += 1
        found.last_end = max(found.last_end, time.monotonic() - begin)
        wire.close()
    return found


def _push(wire: Wire, pieces: Iterator[bytes], end: float, reads: bool = True) -> None:
    """Sends as fast as the proxy takes it, and reads what comes."""
    connection, left = wire.socket, memoryview(b"")
    connection.setblocking(False)
    while not wire.ended and time.monotonic() < end:
        if not left:
            left = memoryview(next(pieces, b""))
            if not left:
                break
        try:
            left = left[connection.send(left[:PIECE]) :]
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            select.select([connection], [connection], [], 0.01)
        except OSError:
            break
        if reads:
            _read_some(wire)
    connection.setblocking(True)
    if reads:
        wire.until(lambda: wire.goaway, 0.3)


def _read_some(wire: Wire) -> None:
    with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
        try:
            wire.feed(wire.socket.recv(65_536))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            wire.ended = True
    # SETTINGS are acknowledged, and PING answered, by `Wire`; streams that have ended are forgotten.
    for number in [number for number, stream in wire.streams.items() if stream.ended or stream.reset is not None][:200]:
        del wire.streams[number]


def ending(wire: Wire) -> str:
    if wire.goaway and wire.goaway[1]:
        return f"GOAWAY {frames.CODES[min(wire.goaway[1], 13)]}"
    return "closed" if wire.ended else "open"


def _numbers(wire: Wire) -> Iterator[int]:
    """Identifiers of streams."""
    number = 1
    while number < 0x7FFF_FFFF:
        wire.stream(number)
        yield number
        number += 2


# --- Floods that the proxy must end ---


def _resets(place: Place, wire: Wire) -> Iterator[bytes]:
    head, reset = place.get("/silence"), struct.pack(">I", 8)
    numbers = _numbers(wire)
    while True:
        yield b"".join(
            frame(frames.HEADERS, END_STREAM | END_HEADERS, number, head) + frame(frames.RST_STREAM, 0, number, reset)
            for number in (next(numbers) for _ in range(100))
        )


def rapid_reset(place: Place) -> Outcome:
    """CVE-2023-44487: requests that are reset at once."""
    return storm(place, _resets)


def _provoked(place: Place, wire: Wire) -> Iterator[bytes]:
    """Requests, each with a frame for which the server must reset it."""
    head = place.get("/silence", "POST")
    bad = (
        (frames.WINDOW_UPDATE, 0, bytes(4)),
        (frames.WINDOW_UPDATE, 0, struct.pack(">I", 0x7FFF_FFFF)),
        (frames.PRIORITY, 0, b"1"),
        (frames.DATA, 0, b"after the end"),
        (frames.HEADERS, END_HEADERS, frames.block([(b"x-a", b"b")])),
    )
    # A connection for each way, as some are errors of the connection.
    way = _provoked.way = (getattr(_provoked, "way", -1) + 1) % len(bad)
    kind, flags, payload = bad[way]
    ended = END_STREAM if kind == frames.DATA else 0
    numbers = _numbers(wire)
    while True:
        yield b"".join(
            frame(frames.HEADERS, ended | END_HEADERS, number, head) + frame(kind, flags, number, payload)
            for number in (next(numbers) for _ in range(100))
        )


def made_you_reset(place: Place) -> Outcome:
    """CVE-2025-8671: requests that make the server reset them."""
    return storm(place, _provoked)


def _malformed(place: Place, wire: Wire) -> Iterator[bytes]:
    head = place.get() + compression.literal(b"connection", b"close")
    numbers = _numbers(wire)
    while True:
        yield b"".join(
            frame(frames.HEADERS, END_STREAM | END_HEADERS, number, head)
            for number in (next(numbers) for _ in range(100))
        )


def malformed_heads(place: Place) -> Outcome:
    """Malformed requests, each of which is an error of its stream."""
    return storm(place, _malformed)


def _continued(size: int) -> Storm:
    def pieces(place: Place, wire: Wire) -> Iterator[bytes]:
        wire.stream(1)
        yield frame(frames.HEADERS, END_STREAM, 1, place.get())
        # One literal that goes on and on.
        yield frame(frames.CONTINUATION, 0, 1, b"\0\x01a\x7f\x80\x80\x80\x04")
        while True:
            yield frame(frames.CONTINUATION, 0, 1, b"a" * size) * max(1, PIECE // (size + 9))

    return pieces


def continuations(place: Place) -> Outcome:
    """CVE-2024-27316: a head that never ends, in frames of 16 kB."""
    return storm(place, _continued(frames.FRAME))


def empty_continuations(place: Place) -> Outcome:
    """The same in frames without a byte."""
    return storm(place, _continued(0))


def _same(piece: bytes) -> Storm:
    def pieces(_: Place, __: Wire) -> Iterator[bytes]:
        while True:
            yield piece

    return pieces


def pings(place: Place) -> Outcome:
    """CVE-2019-9512: each must be answered."""
    return storm(place, _same(frame(frames.PING, 0, 0, bytes(8)) * 3000))


def settings(place: Place) -> Outcome:
    """CVE-2019-9515: each must be acknowledged."""
    return storm(place, _same(frames.settings([(4, 65_535)]) * 3000))


def table_sizes(place: Place) -> Outcome:
    """SETTINGS that change the size of the table to and fro."""
    return storm(place, _same((frames.settings([(1, 0)]) + frames.settings([(1, 4096)])) * 1500))


def priorities(place: Place) -> Outcome:
    """CVE-2019-9513: PRIORITY of streams that nobody opens."""
    piece = b"".join(frame(frames.PRIORITY, 0, n, struct.pack(">IB", 0, 1)) for n in range(1, 8001, 2))
    return storm(place, _same(piece))


def unknown_frames(place: Place) -> Outcome:
    """Frames of an unknown type, which must be ignored one by one."""
    return storm(place, _same(frame(200, 0, 0, b"") * 6000))


def window_updates(place: Place) -> Outcome:
    """Windows that grow by one byte at a time."""
    return storm(place, _same(frame(frames.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 4000))


def _uploads(payload: bytes, flags: int) -> Storm:
    def pieces(place: Place, wire: Wire) -> Iterator[bytes]:
        wire.stream(1)
        yield frame(frames.HEADERS, END_HEADERS, 1, place.get("/silence", "POST"))
        while True:
            yield frame(frames.DATA, flags, 1, payload) * 3000

    return pieces


def empty_data(place: Place) -> Outcome:
    """CVE-2019-9518: DATA without a byte, which costs no window."""
    return storm(place, _uploads(b"", 0))


# --- Floods that must come to their end by a time-out, or cost nothing ---


def padded_data(place: Place) -> Outcome:
    """Padding without data: it costs window, which the server gives back."""
    return _paced(place, bytes([0]), frames.PADDED)


def one_byte_data(place: Place) -> Outcome:
    """Uploads in frames of one byte."""
    return _paced(place, b"a", 0)


def _paced(place: Place, payload: bytes, flags: int) -> Outcome:
    """A hundred uploads on each connection, as the windows allow."""

    def pieces(_: Place, wire: Wire) -> Iterator[bytes]:
        numbers = list(range(1, 200, 2))
        for number in numbers:
            wire.stream(number)
        head = place.get("/silence", "POST")
        yield b"".join(frame(frames.HEADERS, END_HEADERS, number, head) for number in numbers)
        while True:
            piece = b""
            for number in numbers:
                stream = wire.streams.get(number)
                if stream and not stream.ended and stream.reset is None and min(stream.window, wire.window) > 20:
                    stream.window -= 20 * len(payload)
                    wire.window -= 20 * len(payload)
                    piece += frame(frames.DATA, flags, number, payload) * 20
            yield piece or frame(frames.WINDOW_UPDATE, 0, 0, struct.pack(">I", 2048))

    return storm(place, pieces, must_end=False)


def hpack_bombs(place: Place) -> Outcome:
    """Entries of 4 kB that a head names thousands of times: 60 MB from 16 kB."""

    def pieces(_: Place, wire: Wire) -> Iterator[bytes]:
        numbers = _numbers(wire)
        first = place.get() + compression.literal(b"x-a", b"a" * 4000, 0x40)
        yield frame(frames.HEADERS, END_STREAM | END_HEADERS, next(numbers), first)
        bomb = place.get() + b"\xbe" * 16_000
        while True:
            number = next(numbers)
            yield frame(frames.HEADERS, END_STREAM | END_HEADERS, number, bomb)

    found = storm(place, pieces, must_end=False)
    return found


def large_heads(place: Place) -> Outcome:
    """Heads of 30 kB, almost as large as is allowed, with a hundred streams at a time that are never answered."""

    def pieces(_: Place, wire: Wire) -> Iterator[bytes]:
        for number in range(1, 200, 2):
            wire.stream(number)
            block = place.get("/silence") + compression.literal(b"x-a", b"a" * 29_000)
            yield frame(frames.HEADERS, END_STREAM, number, block[:16_000]) + frame(
                frames.CONTINUATION, END_HEADERS, number, block[16_000:]
            )
        while not wire.ended:
            yield frame(frames.PING, 0, 0, bytes(8))
            wire.rest(0.2)
            wire.socket.setblocking(False)

    return storm(place, pieces, must_end=False)


def unread(place: Place) -> Outcome:
    """PING and requests of a client that never reads: what is to be sent must not pile up."""
    found, end = Outcome(), time.monotonic() + SECONDS
    wires = [place.open() for _ in range(AT_ONCE)]

    def one(wire: Wire) -> None:
        numbers = _numbers(wire)

        def pieces() -> Iterator[bytes]:
            while True:
                heads = [frames.head(next(numbers), frames.get(place.host, "/size/100000")) for _ in range(10)]
                yield b"".join(heads) + frame(frames.PING, 0, 0, bytes(8)) * 100

        _push(wire, pieces(), end, reads=False)

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, wires))
    for wire in wires:
        wire.rest(0.2)
        found.ends[ending(wire)] += 1
        wire.close()
    return found


def stalled_windows(place: Place) -> Outcome:
    """Four hundred pages of 1 MB for clients whose windows stay closed: the streams end after timeouts.write_stall."""
    return _stalled(place, 0, 0)


def tiny_windows(place: Place) -> Outcome:
    """The same, and each stream's window opens by one byte each 0.2 s: the streams end after timeouts.request."""
    return _stalled(place, 1, 0.2)


def _stalled(place: Place, window: int, pause: float) -> Outcome:
    begin = time.monotonic()
    wires = [place.open([(4, window)]) for _ in range(AT_ONCE)]
    numbers = range(1, 200, 2)
    for wire in wires:
        wire.send(b"".join(frames.head(number, frames.get(place.host, "/size/1000000")) for number in numbers))
        for number in numbers:
            wire.stream(number)

    def over(wire: Wire) -> bool:
        return wire.ended or all(stream.ended or stream.reset is not None for stream in wire.streams.values())

    while not all(over(wire) for wire in wires) and time.monotonic() - begin < 8:
        for wire in wires:
            if pause:
                live = [n for n, one in wire.streams.items() if not one.ended and one.reset is None]
                wire.send(b"".join(frame(frames.WINDOW_UPDATE, 0, n, b"\0\0\0\x01") for n in live))
            wire.rest(max(pause / len(wires), 0.05))
    found = Outcome(last_end=time.monotonic() - begin)
    for wire in wires:
        for stream in wire.streams.values():
            code = "open" if stream.reset is None else f"RST {frames.CODES[min(stream.reset, 13)]}"
            found.ends[ending(wire) if wire.ended else "ended" if stream.ended else code] += 1
        wire.close()
    return found


def held_resets(place: Place) -> Outcome:
    """A hundred streams at a time wait for a host with a slow pace, and are reset: no fetch for those, and no place
    in the queue that stays taken."""
    found, end = Outcome(), time.monotonic() + 3
    wire, numbers = place.open(), iter(range(1, 100_000, 2))
    while time.monotonic() < end and not wire.ended:
        batch = [next(numbers) for _ in range(50)]
        for number in batch:
            wire.stream(number)
        wire.send(b"".join(frames.head(n, frames.get(place.host, f"/held/{n}")) for n in batch))
        wire.rest(0.3)
        live = [n for n in batch if not wire.stream(n).ended and wire.stream(n).reset is None]
        wire.send(b"".join(frame(frames.RST_STREAM, 0, n, struct.pack(">I", 8)) for n in live))
        found.ends["reset"] += len(live)
        found.ends["answered"] += len(batch) - len(live)
        wire.rest(0.2)
    found.ends[ending(wire)] += 1
    wire.close()
    # A client that comes afterwards gets its page as soon as the pace allows: nothing is left in the queue.
    begin = time.monotonic()
    wire = place.open()
    wire.send(frames.head(1, frames.get(place.host, "/after")))
    stream = wire.stream(1)
    wire.until(lambda: stream.ended, 5)
    found.last_end = time.monotonic() - begin
    if stream.status != 200 or found.last_end > 1:
        found.problems.append(f"a client afterwards got {stream.status} after {found.last_end:.1f} s")
    wire.close()
    return found


def idle_streams(place: Place) -> Outcome:
    """Requests whose bodies never come, a hundred on each of twelve connections; 1,000 are allowed (per_client)."""
    begin, wires = time.monotonic(), [place.open() for _ in range(12)]
    head = place.get("/", "POST")
    for wire in wires:
        for number in range(1, 200, 2):
            wire.stream(number)
        wire.send(b"".join(frame(frames.HEADERS, END_HEADERS, number, head) for number in range(1, 200, 2)))

    def over(wire: Wire) -> bool:
        return wire.ended or all(stream.ended or stream.reset is not None for stream in wire.streams.values())

    while not all(over(wire) for wire in wires) and time.monotonic() - begin < 8:
        for wire in wires:
            wire.rest(0.02)
    found = Outcome(last_end=time.monotonic() - begin)
    for wire in wires:
        for stream in wire.streams.values():
            state = str(stream.status) if stream.ended else "open" if stream.reset is None else "RST"
            found.ends[ending(wire) if wire.ended and state == "open" else state] += 1
        wire.close()
    if not found.ends["503"]:
        found.problems.append("no stream was one too many")
    return found


def idle_connections(place: Place) -> Outcome:
    """Two hundred connections that send their preface and nothing else."""
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        wires = list(pool.map(lambda _: place.open(), range(200)))
    opened = time.monotonic()
    while not all(wire.ended for wire in wires) and time.monotonic() - opened < 8:
        for wire in wires:
            if not wire.ended and select.select([wire.socket], [], [], 0)[0]:
                wire.rest(0.001)
        time.sleep(0.02)
    found = Outcome(last_end=time.monotonic() - begin)
    for wire in wires:
        found.ends[ending(wire)] += 1
        wire.close()
    return found
