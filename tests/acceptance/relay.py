"""Relays between the processes of a run, which can cut what one process sends to another.

A cut is that of a network: packets vanish, and connections stay open. It is made by a socket filter that drops whatever the
relay's kernel receives for a connection, so that the sender gets no acknowledgement, and sends again. If the other direction still
passes, the receiver of the missing packets sees a silent peer whose kernel acknowledges what it is sent, as behind a NAT, a load
balancer or the sidecar of a service mesh.
"""

from __future__ import annotations

import ctypes
import dataclasses
import multiprocessing
import os
import pathlib
import socket
import struct
import threading
from multiprocessing.connection import Connection

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
# `ret #0`: no byte of a packet is kept.
_INSTRUCTION = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0), 8)
_DROP_ALL = struct.pack("HP", 1, ctypes.addressof(_INSTRUCTION))

# From, to: the names of two processes.
Direction = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Way:
    """Where a process is dialled, and by whom; None: by one of several, which is found by its process id."""

    source: str | None
    target: str
    port: int


class Network:
    """A process with a listener for each way."""

    def __init__(self, ways: list[Way]) -> None:
        listeners = [socket.create_server(("127.0.0.1", 0), backlog=256) for _ in ways]
        self.ports = [listener.getsockname()[1] for listener in listeners]
        self._commands, commands = multiprocessing.Pipe()
        arguments = (ways, listeners, commands)
        self._process = multiprocessing.get_context("fork").Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        for listener in listeners:
            listener.close()

    def set_processes(self, pids: dict[str, int]) -> None:
        """Names the processes that dial ways without a source."""
        self._send("pids", pids)

    def cut(self, directions: set[Direction]) -> None:
        """Cuts these directions, and no others."""
        self._send("cut", directions)

    def heal(self) -> None:
        self.cut(set())

    def _send(self, what: str, value: object) -> None:
        self._commands.send((what, value))
        self._commands.recv()

    def stop(self) -> None:
        self._process.kill()
        self._process.join(10)


def both(one: str, other: str) -> set[Direction]:
    return {(one, other), (other, one)}


def _serve(ways: list[Way], listeners: list[socket.socket], commands: Connection) -> None:
    relay = _Relay()
    for way, listener in zip(ways, listeners):
        threading.Thread(target=relay.accept, args=(way, listener), daemon=True).start()
    while True:
        what, value = commands.recv()
        if what == "pids":
            relay.pids = value
        else:
            relay.cut(value)
        commands.send(None)


class _Relay:
    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        # Notified of other cuts.
        self._lock = threading.Condition()
        self._cut: set[Direction] = set()
        # The direction of what each socket receives.
        self._receivers: dict[socket.socket, Direction] = {}

    def cut(self, directions: set[Direction]) -> None:
        with self._lock:
            for receiver, direction in self._receivers.items():
                if (direction in directions) != (direction in self._cut):
                    _set_dropping(receiver, direction in directions)
            self._cut = directions
            self._lock.notify_all()

    def accept(self, way: Way, listener: socket.socket) -> None:
        while True:
            accepted, (_, port) = listener.accept()
            source = way.source or self._find_source(port)
            threading.Thread(target=self._join, args=(accepted, source, way), daemon=True).start()

    def _find_source(self, port: int) -> str:
        """The process that has the connected socket at this local port."""
        lines = pathlib.Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
        fields = [line.split() for line in lines]
        inodes = {f"socket:[{each[9]}]" for each in fields if each[1].endswith(f":{port:04X}")}
        for name, pid in self.pids.items():
            folder = f"/proc/{pid}/fd"
            for descriptor in os.listdir(folder):
                try:
                    if os.readlink(f"{folder}/{descriptor}") in inodes:
                        return name
                except FileNotFoundError:
                    continue
        return "unknown"

    def _join(self, accepted: socket.socket, source: str, way: Way) -> None:
        """Connects to the target, and carries bytes both ways."""
        dialled = socket.socket()
        self._register(accepted, (source, way.target))
        self._register(dialled, (way.target, source))
        with self._lock:
            # Its first packets may have come before the filter.
            self._lock.wait_for(lambda: (source, way.target) not in self._cut)
        try:
            dialled.connect(("127.0.0.1", way.port))
        except OSError:
            return self._close(accepted, dialled)
        back = threading.Thread(target=_carry, args=(dialled, accepted), daemon=True)
        back.start()
        _carry(accepted, dialled)
        back.join()
        return self._close(accepted, dialled)

    def _register(self, receiver: socket.socket, direction: Direction) -> None:
        receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._receivers[receiver] = direction
            if direction in self._cut:
                _set_dropping(receiver, True)

    def _close(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with self._lock:
                del self._receivers[each]
            each.close()


def _set_dropping(receiver: socket.socket, drops: bool) -> None:
    if drops:
        receiver.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, _DROP_ALL)
    else:
        receiver.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Carries bytes until the source has no more; the end of one that broke off is that of both directions."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                # It is not connected any more.
                continue
