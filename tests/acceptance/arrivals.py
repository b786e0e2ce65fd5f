"""An origin of many hosts, in a process of its own, that keeps when each request reached the machine.

The time of an arrival is the kernel's (SO_TIMESTAMPNS), taken when the bytes came, not when this process came to read
them: on a busy machine the two are apart by more than what is to be shown.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import multiprocessing
import os
import random
import selectors
import signal
import socket
import struct
import time

SO_TIMESTAMPNS = 35
# Hosts are `h<number>.paced.test`; every tenth of them fails now and then.
DOMAIN = "paced.test"
FAILING = 10
# The most failures of a page: a client that requests it three times gets it. Also the most of a host in a row.
FAILS = 2
# For how long a host that complains wants to rest, in seconds.
REST = 1

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"
ABSENT = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
BROKEN = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
TIRED = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n" % REST


@dataclasses.dataclass
class Log:
    """Requests at the origin, by host: arrivals, and responses with a Retry-After; nanoseconds of the wall clock."""

    arrivals: dict[int, list[int]]
    complaints: dict[int, list[int]]
    pages: int


class Origin:
    """The process, and its log when it is stopped."""

    def __init__(self, path: os.PathLike, seed: int, failures: float) -> None:
        """`failures`: the share of failures among the responses of a failing host."""
        self._path = path
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        # Connections inherit it, so that no byte comes before it is set.
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.port = listener.getsockname()[1]
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_serve, args=(listener, path, seed, failures), daemon=True)
        self._process.start()
        listener.close()

    def url(self, host: int, path: str) -> str:
        return f"http://h{host}.{DOMAIN}:{self.port}{path}"

    def stop(self) -> Log:
        os.kill(self._process.pid, signal.SIGTERM)
        self._process.join(10)
        log, values = Log({}, {}, 0), array.array("q")
        with open(self._path, "rb") as file:
            values.frombytes(file.read())
        for host, what, at in zip(values[0::3], values[1::3], values[2::3]):
            log.pages += what == 1
            (log.complaints if what == 2 else log.arrivals).setdefault(host, []).append(at)
        return log


def too_close(log: Log, least: float) -> tuple[list[str], list[float]]:
    """Requests to one host that are less than this number of seconds apart, as text; and all gaps, the shortest first."""
    gaps = sorted(
        ((later - earlier) / 1e9, host)
        for host, times in log.arrivals.items()
        for earlier, later in zip(sorted(times), sorted(times)[1:])
    )
    return [f"h{host}: {1000 * gap:.3f} ms" for gap, host in gaps if gap < least], [gap for gap, _ in gaps]


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


def _serve(listener: socket.socket, path: os.PathLike, seed: int, failures: float) -> None:
    def stop(*_: object) -> None:
        raise _Stop

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _Server(listener, seed, failures)
    try:
        server.run()
    except _Stop:
        with open(path, "wb") as file:
            server.log.tofile(file)


class _Server:
    def __init__(self, listener: socket.socket, seed: int, failures: float) -> None:
        self._failures = failures
        self._failed: collections.Counter[tuple[int, bytes]] = collections.Counter()
        self._failed_in_a_row: collections.Counter[int] = collections.Counter()
        self.log = array.array("q")
        self._random = random.Random(seed)
        self._listener = listener
        self._selector = selectors.EpollSelector()

    def run(self) -> None:
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.fileobj, key.data)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection, selectors.EVENT_READ, bytearray())

    def _read(self, connection: socket.socket, head: bytearray) -> None:
        try:
            data, ancillary, _, _ = connection.recvmsg(65536, 128)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            return self._close(connection)
        head += data
        if not head.endswith(b"\r\n\r\n"):
            return None
        at = _stamp(ancillary)
        request = bytes(head)
        head.clear()
        answer = self._answer(request, at)
        if answer is None:
            return self._close(connection)
        try:
            connection.send(answer)
        except OSError:
            self._close(connection)
        return None

    def _answer(self, request: bytes, at: int) -> bytes | None:
        """None: the connection is closed instead."""
        host = int(request.split(b"\r\nhost: h", 1)[-1].split(b".", 1)[0]) if b"\r\nhost: h" in request else -1
        robots = request.startswith(b"GET /robots.txt ")
        self.log.extend((host, 0 if robots else 1, at))
        if robots:
            return ABSENT
        chance, page = self._random.random(), (host, request.split(b" ", 2)[1])
        exhausted = FAILS in (self._failed[page], self._failed_in_a_row[host])
        if host % FAILING or chance > self._failures or exhausted:
            self._failed_in_a_row[host] = 0
            return OK
        self._failed[page] += 1
        self._failed_in_a_row[host] += 1
        if chance < self._failures / 3:
            return None
        if chance < self._failures * 2 / 3:
            return BROKEN
        self.log.extend((host, 2, time.time_ns()))
        return TIRED

    def _close(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()


def _stamp(ancillary: list) -> int:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            return seconds * 1_000_000_000 + nanoseconds
    raise RuntimeError("the kernel gave no time with the bytes")
