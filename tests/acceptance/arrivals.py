"""An origin of many hosts, in a process of its own, that keeps when each request reached the machine.

The time of an arrival is the kernel's (SO_TIMESTAMPNS), taken when the bytes came, not when this process came to read
them: on a busy machine the two are apart by more than what is to be shown.

With a TLS context its hosts speak HTTP/2 (`arrivals_http2.py`).
"""

from __future__ import annotations

import array
import collections
import dataclasses
import enum
import heapq
import multiprocessing
import os
import random
import selectors
import signal
import socket
import ssl
import struct
import time
from typing import Protocol

SO_TIMESTAMPNS = 35
# Hosts are `h<number>.paced.test`; every tenth of them fails now and then.
DOMAIN = "paced.test"
FAILING = 10
# The most failures of a page: a client that requests it three times gets it. Also the most of a host in a row.
FAILS = 2
# For how long a host that complains wants to rest, in seconds.
REST = 1
# The host after each that fails takes this long for a page, in seconds.
SLOW = 0.15


class Reply(enum.Enum):
    """What a host does with a request."""

    PAGE = 200
    ABSENT = 404
    BROKEN = 500
    TIRED = 503
    # No response: the connection is closed, or the stream reset.
    NONE = 0


class Link(Protocol):
    """The origin's side of a connection."""

    def take(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """The requests that are whole with these bytes: stream, number of the host (-1: none), path."""

    def waits(self, stream: int) -> bool:
        """Whether the client still waits for the reply."""

    def reply(self, stream: int, reply: Reply) -> bool:
        """Sends it; False: the connection is to be closed. An OSError: the client has left."""


@dataclasses.dataclass
class Log:
    """Requests at the origin, by host: arrivals, and responses with a Retry-After; nanoseconds of the wall clock."""

    arrivals: dict[int, list[int]]
    complaints: dict[int, list[int]]
    # The most requests that were under way at once.
    most: dict[int, int]
    pages: int
    # Requests whose arrival is not known, since they were read together with a later one.
    untimed: int


class Origin:
    """The process, and its log when it is stopped."""

    def __init__(
        self, path: os.PathLike, seed: int, failures: float, context: ssl.SSLContext | None = None
    ) -> None:
        """`failures`: the share of failures among the responses of a failing host."""
        self._path, self._scheme = path, "https" if context else "http"
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        # Connections inherit it, so that no byte comes before it is set.
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.port = listener.getsockname()[1]
        _wait_for_times(listener)
        arguments = (listener, path, seed, failures, context)
        self._process = multiprocessing.get_context("fork").Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        listener.close()

    def url(self, host: int, path: str) -> str:
        return f"{self._scheme}://h{host}.{DOMAIN}:{self.port}{path}"

    def stop(self) -> Log:
        os.kill(self._process.pid, signal.SIGTERM)
        self._process.join(10)
        log, values = Log({}, {}, {}, 0, 0), array.array("q")
        with open(self._path, "rb") as file:
            values.frombytes(file.read())
        for host, what, at in zip(values[0::3], values[1::3], values[2::3]):
            log.pages += what in (1, 4)
            if what == 3:
                log.most[host] = max(at, log.most.get(host, 0))
            elif what == 4:
                log.untimed += 1
            else:
                (log.complaints if what == 2 else log.arrivals).setdefault(host, []).append(at)
        return log


def too_close(log: Log, least: float) -> tuple[list[str], list[float]]:
    """Requests to one host that are less than this number of seconds apart, as text; and all gaps, the shortest first."""
    begin = min((min(times) for times in log.arrivals.values()), default=0)
    gaps = sorted(
        ((later - earlier) / 1e9, host, (later - begin) / 1e9)
        for host, times in log.arrivals.items()
        for earlier, later in zip(sorted(times), sorted(times)[1:])
    )
    close = [f"h{host}: {1000 * gap:.3f} ms, after {at:.1f} s" for gap, host, at in gaps if gap < least]
    return close, [gap for gap, _, _ in gaps]


def woken(log: Log, allowed: float) -> list[str]:
    """Requests to a host during a rest that it requested, as text."""
    return [
        f"h{host}: {(arrival - said) / 1e9:.3f} s behind its complaint"
        for host, complaints in log.complaints.items()
        for said in complaints
        for arrival in log.arrivals[host]
        # Requests that were already granted may arrive while the response is on its way.
        if 10_000_000 < arrival - said < (REST - allowed) * 1e9
    ]


class _Stop(Exception):
    pass


def _serve(
    listener: socket.socket, path: os.PathLike, seed: int, failures: float, context: ssl.SSLContext | None
) -> None:
    def stop(*_: object) -> None:
        raise _Stop

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _Server(listener, seed, failures, context)
    try:
        server.run()
    except _Stop:
        with open(path, "wb") as file:
            server.log.tofile(file)


class _Plain:
    """HTTP/1.1: one request at a time."""

    _BYTES = {
        Reply.PAGE: b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n",
        Reply.ABSENT: b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        Reply.BROKEN: b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
        Reply.TIRED: b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n" % REST,
    }

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._head = connection, bytearray()

    def take(self, data: bytes) -> list[tuple[int, int, bytes]]:
        self._head += data
        if not self._head.endswith(b"\r\n\r\n"):
            return []
        request = bytes(self._head)
        self._head.clear()
        host = int(request.split(b"\r\nhost: h", 1)[-1].split(b".", 1)[0]) if b"\r\nhost: h" in request else -1
        return [(0, host, request.split(b" ", 2)[1])]

    def waits(self, _: int) -> bool:
        return self._socket.fileno() >= 0

    def reply(self, _: int, reply: Reply) -> bool:
        if reply is Reply.NONE:
            return False
        self._socket.send(self._BYTES[reply])
        return True


class _Server:
    def __init__(
        self, listener: socket.socket, seed: int, failures: float, context: ssl.SSLContext | None
    ) -> None:
        self._failures, self._context = failures, context
        self._failed: collections.Counter[tuple[int, bytes]] = collections.Counter()
        self._failed_in_a_row: collections.Counter[int] = collections.Counter()
        # Replies that wait: when, a number that tells equal times apart, connection, link, stream, host.
        self._late: list[tuple[float, int, socket.socket, Link, int, int]] = []
        self.log = array.array("q")
        self._random = random.Random(seed)
        self._listener = listener
        self._selector = selectors.EpollSelector()

    def run(self) -> None:
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        while True:
            pause = max(0.0, self._late[0][0] - time.monotonic()) if self._late else None
            for key, _ in self._selector.select(pause):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.fileobj, key.data)
            while self._late and self._late[0][0] <= time.monotonic():
                _, _, connection, link, stream, host = heapq.heappop(self._late)
                self._reply(connection, link, stream, host, Reply.PAGE)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Plain(connection)
        if self._context:
            # Only here, since it needs what reads HTTP/2.
            import arrivals_http2

            link = arrivals_http2.Secure(connection, self._context)
        self._selector.register(connection, selectors.EVENT_READ, link)

    def _read(self, connection: socket.socket, link: Link) -> None:
        try:
            data, ancillary, _, _ = connection.recvmsg(65536, 128)
            requests = link.take(data) if data else []
        except BlockingIOError:
            return
        except OSError:
            data, requests = b"", []
        if not data:
            return self._close(connection)
        # Bytes that are read together have the time of the last ones: that of other requests is not known.
        for number, (stream, host, path) in enumerate(requests, 1):
            at = _stamp(ancillary) if number == len(requests) else None
            self._answer(connection, link, stream, host, path, at)
        return None

    def _answer(
        self, connection: socket.socket, link: Link, stream: int, host: int, path: bytes, at: int | None
    ) -> None:
        robots = path == b"/robots.txt"
        # Whoever has left does not wait for a late reply.
        waiting = sum(each == host and link.waits(stream) for _, _, _, link, stream, each in self._late)
        self.log.extend((host, 3, 1 + waiting))
        kind = 4 if at is None else 0 if robots else 1
        self.log.extend((host, kind, at or 0))
        reply = Reply.ABSENT if robots else self._choose(host, path)
        if reply is Reply.PAGE and host % FAILING == 1:
            late = (time.monotonic() + SLOW, len(self.log), connection, link, stream, host)
            return heapq.heappush(self._late, late)
        return self._reply(connection, link, stream, host, reply)

    def _reply(self, connection: socket.socket, link: Link, stream: int, host: int, reply: Reply) -> None:
        if reply is Reply.TIRED:
            self.log.extend((host, 2, time.time_ns()))
        try:
            kept = link.reply(stream, reply)
        except OSError:
            kept = False
        if not kept:
            self._close(connection)

    def _choose(self, host: int, path: bytes) -> Reply:
        chance, page = self._random.random(), (host, path)
        exhausted = FAILS in (self._failed[page], self._failed_in_a_row[host])
        if host % FAILING or chance > self._failures or exhausted:
            self._failed_in_a_row[host] = 0
            return Reply.PAGE
        self._failed[page] += 1
        self._failed_in_a_row[host] += 1
        if chance < self._failures / 3:
            return Reply.NONE
        return Reply.BROKEN if chance < self._failures * 2 / 3 else Reply.TIRED

    def _close(self, connection: socket.socket) -> None:
        # A late reply may find its connection closed.
        if connection.fileno() >= 0:
            self._selector.unregister(connection)
            connection.close()


def _wait_for_times(listener: socket.socket) -> None:
    """Returns when the kernel takes times: it begins a moment after it is asked, and gives none, or those of reading, until
    then."""
    with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as connection:
        for _ in range(500):
            client.send(b"x")
            time.sleep(0.02)
            _, ancillary, _, _ = connection.recvmsg(1, 128)
            if ancillary and time.time_ns() - _stamp(ancillary) > 15_000_000:
                return
    raise RuntimeError("the kernel gives no time of arrival")


def _stamp(ancillary: list) -> int:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            return seconds * 1_000_000_000 + nanoseconds
    raise RuntimeError("the kernel gave no time with the bytes")
