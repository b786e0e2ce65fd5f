"""Origins that misbehave, clients over raw sockets, and the watch over a proxy while it is attacked.

Origins and watches run in processes of their own, so that an attacker's work does not show in the times of others.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import gzip
import hashlib
import logging
import multiprocessing
import os
import pathlib
import re
import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

# The server from which the processes are forked has no threads, so that none of their locks is copied while it is held.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["hostile"])

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BLOCK = 64 * 1024
OPEN_FILES = 16_000
# Where a request for a page of this many bytes is written: /size/BYTES.
SIZE = re.compile(r"/size/(\d+)")


@dataclasses.dataclass(frozen=True)
class Endless:
    """A response without an end: a beginning, then the same bytes again and again, after a pause if there is one."""

    begin: bytes
    again: bytes
    pause: float = 0


ENDLESS = {
    "/endless-100": Endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "/endless-103": Endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"),
    "/slow-103": Endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", 0.2),
    "/silence": Endless(b"", b"", 1),
    "/head-drip": Endless(b"HTTP/1.1 200 OK\r\nX-Field: ", b"a", 0.2),
    "/endless-line": Endless(b"HTTP/1.1 200 OK\r\nX-Field: ", b"a"),
    "/endless-fields": Endless(b"HTTP/1.1 200 OK\r\n", b"X-Field: a\r\n"),
    "/tiny-chunks": Endless(CHUNKED, b"1\r\na\r\n"),
    "/chunk-zeros": Endless(CHUNKED, b"0"),
    "/chunk-extension": Endless(CHUNKED + b"1;", b"a"),
    "/endless-trailers": Endless(CHUNKED + b"1\r\na\r\n0\r\n", b"X-Trailer: a\r\n"),
    "/body-drip": Endless(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"a", 0.2),
    "/endless-body": Endless(CHUNKED, b"1000\r\n" + b"a" * 4096 + b"\r\n"),
}
# What ends at once, but not as it should. The socket is reset after `/reset`.
BROKEN = {
    "/garbage": b"\x00\x01 this is not HTTP \xff\r\n\r\n",
    "/short": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nonly this",
    "/short-chunk": CHUNKED + b"1000\r\nonly this",
    "/bad-chunk": CHUNKED + b"zz\r\n",
    "/two-lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "/eof": b"",
    "/reset": b"",
}


@functools.cache
def bomb() -> bytes:
    """A document of 8 MB that is packed to a thousandth."""
    return _packed(gzip.compress(b"<a href=/>" * 800_000))


def _packed(body: bytes) -> bytes:
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@functools.cache
def barren() -> bytes:
    """A document of 250 kB that unpacks to nothing: four empty blocks in each five bytes, for each of which a decoder
    makes its tables."""
    body = bytes.fromhex("1f8b08000000000000ff") + bytes.fromhex("0208208000") * 50_000 + b"\x03" + bytes(9)
    assert gzip.decompress(body) == b""
    return _packed(body)


def page(url: str, serial: str, size: int) -> bytes:
    """The body of a page: its URL and the request's serial number, repeated, so that a wrong or mixed body is seen."""
    line = f"{url} {serial}\n".encode()
    return (line * (size // len(line) + 1))[:size] if size else line


class Origin:
    """An origin in a process of its own, on all addresses of loopback."""

    def __init__(self, certificate: tuple[pathlib.Path, pathlib.Path] | None = None) -> None:
        ours, theirs = processes.Pipe()
        self._process = processes.Process(target=_serve_origin, args=(theirs, certificate), daemon=True)
        self._process.start()
        if not ours.poll(20):
            raise RuntimeError("the origin did not start")
        self.port: int = ours.recv()

    def stop(self) -> None:
        self._process.kill()
        self._process.join(10)


def _serve_origin(started: Connection, files: tuple[pathlib.Path, pathlib.Path] | None) -> None:
    raise_open_files()
    # asyncio reports connections that break while it writes to them, which is what they are here for.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    context = None
    if files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)

    async def serve() -> None:
        scheme = "https" if context else "http"
        connected = lambda reader, writer: _serve_connection(reader, writer, scheme)  # noqa: E731
        server = await asyncio.start_server(connected, "0.0.0.0", 0, ssl=context, backlog=4096)
        started.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())


async def _serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, scheme: str) -> None:
    with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while await _serve_request(reader, writer, scheme):
            pass
    with contextlib.suppress(OSError):
        writer.close()


async def _serve_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, scheme: str) -> bool:
    """Answers one request; whether another may follow."""
    request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, target, _ = request.split(" ", 2)
    lines = [line.partition(":") for line in request.split("\r\n")[1:]]
    fields = {name.lower(): value.strip() for name, _, value in lines}
    path = target.partition("?")[0]
    if path in ENDLESS:
        await _send_endless(writer, ENDLESS[path])
    if path in BROKEN:
        writer.write(BROKEN[path])
        if path == "/reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False
    if path in ("/bomb", "/barren"):
        writer.write(bomb() if path == "/bomb" else barren())
        return False
    if path == "/early":
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nearly")
        # The rest of the upload is read, so that no reset destroys the response.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while await reader.read(BLOCK):
                    pass
        return False
    digest = hashlib.sha256(await _read_body(reader, fields)).hexdigest()
    if path.startswith("/pause/"):
        await asyncio.sleep(float(path.removeprefix("/pause/")))
    size = SIZE.search(path)
    serial = fields.get("x-serial", "") + (" " + digest if method == "POST" else "")
    body = page(f"{scheme}://{fields.get('host')}{target}", serial, int(size[1]) if size else 0)
    head, body = _framed(path, body, fields.get("range"))
    writer.write(head if method == "HEAD" else head + body)
    await writer.drain()
    if path.startswith("/close/"):
        writer.write_eof() if writer.can_write_eof() else None
        return False
    return True


def _framed(path: str, body: bytes, wanted: str | None) -> tuple[bytes, bytes]:
    """Head and body: by length, in chunks, up to the connection's end, or a part."""
    status, more = "200 OK", ""
    if wanted:
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        more = f"Content-Range: bytes {first}-{last}/{len(body)}\r\n"
        status, body = "206 Partial Content", body[int(first) : int(last) + 1]
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n{more}"
    if path.startswith("/chunked/"):
        parts = [body[at : at + 3000] for at in range(0, len(body), 3000)]
        framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode(), framed
    if path.startswith("/close/"):
        return f"{head}Connection: close\r\n\r\n".encode(), body
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode(), body


async def _send_endless(writer: asyncio.StreamWriter, response: Endless) -> None:
    """Sends until the other side closes the connection."""
    writer.write(response.begin)
    again = response.again if response.pause else response.again * (BLOCK // len(response.again))
    while not writer.is_closing():
        writer.write(again)
        await writer.drain()
        await asyncio.sleep(response.pause)


async def _read_body(reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
    if "chunked" not in fields.get("transfer-encoding", ""):
        return await reader.readexactly(int(fields.get("content-length", "0")))
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readuntil(b"\r\n")
    return b"".join(parts)


def raise_open_files() -> None:
    """Thousands of connections need more descriptors than the usual soft limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclasses.dataclass
class Call:
    """One connection of an attacker: what came back first, and when it ended."""

    status: int = 0
    reason: str = ""
    seconds: float = 0
    size: int = 0
    ended: bool = False

    def outcome(self) -> str:
        """A word for the tally: status and reason, or how the connection ended."""
        if self.status:
            return f"{self.status} {self.reason}".strip()
        return "closed" if self.ended else "open"


def get(url: str, *fields: str, method: str = "GET") -> bytes:
    """A request for the proxy, after which the connection ends."""
    host = url.split("/")[2]
    head = [f"{method} {url} HTTP/1.1", f"Host: {host}", "Connection: close", *fields, "", ""]
    return "\r\n".join(head).encode()


async def call(
    port: int,
    opening: bytes,
    *,
    drip: bytes = b"",
    pause: float = 0,
    limit: float = 20,
    source: int = 1,
    leave: float | None = None,
) -> Call:
    """Sends the opening, then the drip again and again, and reads until the end, or until `limit`.

    `source` chooses the address 127.0.0.N that it comes from. With `leave` the client vanishes after that time, with a
    reset.
    """
    found, begin = Call(), time.monotonic()
    writer = None
    try:
        address = (f"127.0.0.{source}", 0)
        opened = asyncio.open_connection("127.0.0.1", port, local_addr=address, limit=BLOCK)
        reader, writer = await asyncio.wait_for(opened, limit)
        begin = time.monotonic()
        writer.write(opening)
        sending = asyncio.create_task(_drip(writer, drip, pause)) if drip else None
        try:
            await asyncio.wait_for(_read_all(reader, found), leave if leave is not None else limit)
            found.ended = True
        finally:
            if sending:
                sending.cancel()
    except TimeoutError:
        pass
    except OSError:
        found.ended = True
    found.seconds = time.monotonic() - begin
    if writer:
        with contextlib.suppress(OSError):
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.close()
    return found


async def _drip(writer: asyncio.StreamWriter, drip: bytes, pause: float) -> None:
    with contextlib.suppress(OSError):
        while True:
            await asyncio.sleep(pause)
            writer.write(drip)
            await writer.drain()


async def _read_all(reader: asyncio.StreamReader, found: Call) -> None:
    head = b""
    while data := await reader.read(BLOCK):
        found.size += len(data)
        if len(head) < 4096 and not found.reason:
            head += data
            # The first that is final, or else the last interim one.
            statuses = [int(status) for status in re.findall(rb"(?m)^HTTP/1\.[01] (\d{3})", head)]
            found.status = next((status for status in statuses if status >= 200), statuses[-1] if statuses else 0)
            if matched := re.search(rb"(?i)\r\ncrawl-reason: ([\w-]+)", head):
                found.reason = matched[1].decode()


async def crowd(calls: list, at_once: int = 200) -> list[Call]:
    """Runs many calls side by side; at most `at_once` of them begin in the same tenth of a second."""

    async def later(number: int, one) -> Call:
        await asyncio.sleep(number // at_once * 0.1)
        return await one

    return await asyncio.gather(*(later(number, one) for number, one in enumerate(calls)))


def tally(calls: list[Call]) -> collections.Counter[str]:
    return collections.Counter(one.outcome() for one in calls)


def exchange(port: int, request: bytes, limit: float = 10, source: str = "127.0.0.1") -> tuple[int, bytes]:
    """One request that ends its connection; status (0: none) and everything received."""
    received = b""
    with contextlib.suppress(OSError):
        with socket.create_connection(("127.0.0.1", port), limit, source_address=(source, 0)) as connection:
            connection.sendall(request)
            while data := connection.recv(BLOCK):
                received += data
    matched = re.match(rb"HTTP/1\.[01] (\d{3})", received)
    return int(matched[1]) if matched else 0, received


def admin(port: int, path: str, limit: float = 10, method: str = "GET") -> tuple[int, bytes]:
    """A request to the admin listener; status and body."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    status, received = exchange(port, head.encode(), limit)
    return status, received.partition(b"\r\n\r\n")[2]


def is_running(pid: int) -> bool:
    """Whether the process lives; one that has ended and was not waited for does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def family(pid: int) -> list[int]:
    """The process and its descendants."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in pathlib.Path(f"/proc/{one}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
    return found


def memory(pids: list[int]) -> int:
    """Resident memory, in bytes."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            pages += int(pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def descriptors(pids: list[int]) -> int:
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            count += len(os.listdir(f"/proc/{pid}/fd"))
    return count


@dataclasses.dataclass
class Readings:
    """What a watch measured, each with its time by the monotonic clock."""

    healthy: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    health: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    memory: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    descriptors: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    failures: list[tuple[float, str]] = dataclasses.field(default_factory=list)


class Watch:
    """A healthy client on a host of its own, a prober of /healthz, and the figures of /proc, in another process."""

    def __init__(self, pid: int, port: int, admin_port: int, request: bytes, pause: float) -> None:
        self._ours, theirs = processes.Pipe()
        self._process = processes.Process(
            target=_watch, args=(theirs, pid, port, admin_port, request, pause), daemon=True
        )
        self._process.start()
        if self._ours.poll(30):
            self._ours.recv()

    def stop(self) -> Readings:
        self._ours.send("end")
        readings = self._ours.recv() if self._ours.poll(30) else Readings()
        self._process.join(10)
        return readings


def _watch(parent: Connection, pid: int, port: int, admin_port: int, request: bytes, pause: float) -> None:
    readings, end = Readings(), threading.Event()
    jobs: list[tuple[Callable[..., None], tuple]] = [
        (_watch_requests, (readings, end, port, request, pause)),
        (_watch_process, (readings, end, pid)),
    ]
    if admin_port:
        jobs.append((_watch_health, (readings, end, admin_port)))
    threads = [threading.Thread(target=job, args=arguments, daemon=True) for job, arguments in jobs]
    for thread in threads:
        thread.start()
    parent.send("started")
    parent.recv()
    end.set()
    for thread in threads:
        thread.join(12)
    parent.send(readings)


def _watch_requests(readings: Readings, end: threading.Event, port: int, request: bytes, pause: float) -> None:
    """Sends requests on a kept connection. One that takes longer than the pause counts for those that it kept from
    being sent, too, each with the time that it would have waited: else a stall of seconds would be a single value."""
    connection = None
    while not end.is_set():
        begin = time.monotonic()
        try:
            connection = connection or socket.create_connection(("127.0.0.1", port), 10)
            connection.settimeout(10)
            if not _healthy(connection, request):
                readings.failures.append((time.monotonic(), "the healthy client got another answer than its page"))
                connection.close()
                connection = None
        except OSError as error:
            readings.failures.append((time.monotonic(), f"the healthy client: {error!r}"))
            connection = None
        took = time.monotonic() - begin
        readings.healthy += [(begin + n * pause, took - n * pause) for n in range(int(took / pause) + 1)]
        time.sleep(max(0.0, pause - took))


def _healthy(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(request)
    received, whole = b"", None
    while whole is None or len(received) < whole:
        data = connection.recv(BLOCK)
        if not data:
            raise ConnectionResetError("closed without an answer")
        received += data
        head, end, _ = received.partition(b"\r\n\r\n")
        if end:
            length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
            if head[9:12] != b"200" or not length:
                return False
            whole = len(head) + len(end) + int(length[1])
    return True


def _watch_health(readings: Readings, end: threading.Event, port: int) -> None:
    while not end.wait(0.2):
        begin = time.monotonic()
        status, _ = admin(port, "/healthz", 5)
        took = time.monotonic() - begin
        readings.health.append((begin, took if status == 200 else max(took, 5.0)))


def _watch_process(readings: Readings, end: threading.Event, pid: int) -> None:
    pids, number = family(pid), 0
    while not end.wait(0.05):
        if number % 10 == 0:
            pids = family(pid)
            readings.descriptors.append((time.monotonic(), descriptors(pids)))
        readings.memory.append((time.monotonic(), memory(pids)))
        number += 1
