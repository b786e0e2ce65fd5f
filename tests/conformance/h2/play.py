"""Plays one row: sends its frames, and compares what comes back and what the origin got."""

from __future__ import annotations

import collections
import re
import socket
import ssl
import struct
import time

import frames
import rows
from frames import END_HEADERS, END_STREAM, Field, Wire, frame
from raw_origin import ALIVE, Message, Origin, read
from rows import Row, Step

LIMIT = 6.0
# What `>` may be followed by, apart from methods.
_VERBS = {*frames.TYPES, "FRAME", "BYTES", "UPLOAD", "STREAM", "OVERFLOW", "PAUSE", "LEAVE", "SEEN"}


class Player:
    """One row on a connection to a proxy."""

    def __init__(self, row: Row, wire: Wire, origin: Origin | None, host: str, scheme: str) -> None:
        self._row, self._wire, self._origin, self._scheme = row, wire, origin, scheme
        name, _, port = host.rpartition(":")
        self.names = {"host": host, "name": name, "port": port, "via": "crawlgate"}
        self.problems: list[str] = []
        # The rest of a field block that continues, and the largest stream so far.
        self._rest = b""
        self._last = -1
        self._over = False
        # Whether an answer came that is marked as a deviation.
        self.deviates = False

    def play(self) -> list[str]:
        """Problems with the row."""
        wire, settings = self._wire, self._row.settings
        wire.answers = "unanswered" not in settings
        if "bare" not in settings:
            pairs = [self._setting(word) for word in settings.get("settings", "").split()]
            wire.decoder.allowed = min([4096, *(value for name, value in pairs if name == 1)])
            wire.largest = max([frames.FRAME, *(value for name, value in pairs if name == 5 and value < 1 << 24)])
            wire.begin(pairs)
            if not wire.until(lambda: wire.settings or wire.goaway or wire.ended):
                self.problems.append("no SETTINGS within 5 s")
        for step in self._row.steps:
            self._step(step)
        if not self._over and "ends" not in settings:
            self._alive()
        self.problems += wire.problems
        if self._origin:
            self._arrived(self._origin)
        return self.problems

    def _text(self, written: str) -> bytes:
        return rows.text(written, self.names)

    def _step(self, step: Step) -> None:
        if step.kind == ">":
            self._send(step)
            return
        problem = self._outcome(step) if step.kind == "<" else self._part(step)
        if problem:
            self.problems.append(f"line {step.line}: {step.kind} {' '.join(step.words)}: {problem}")

    # --- What is sent ---

    def _send(self, step: Step) -> None:
        verb, *words = step.words
        if verb not in _VERBS:
            first, _, last = words[0].partition("..")
            for number in range(int(first), int(last or first) + 1, 2):
                self._head(step, number, verb, words[1], words[2:])
        elif verb == "PAUSE":
            self._wire.rest(float(words[0]))
        elif verb == "LEAVE":
            self._wire.close()
            self._over = True
        elif verb == "SEEN":
            self._seen(self._text(words[0]))
        elif verb in ("UPLOAD", "STREAM"):
            self._upload(int(words[0]), words[1:], verb == "UPLOAD")
        elif verb == "OVERFLOW":
            self._overflow(int(words[0]))
        elif verb == "HEADERS":
            self._head(step, int(words[0]), "", "", words[1:])
        else:
            self._wire.send(self._frame(verb, words))

    def _seen(self, text: bytes) -> None:
        """Waits until the origin has received these bytes."""
        self._wire.until(lambda: any(text in received for received in self._origin.received))
        if not any(text in received for received in self._origin.received):
            self.problems.append(f"the origin does not receive {text!r}")

    def _upload(self, number: int, words: list[str], last: bool) -> None:
        options = dict(word.split("=") for word in words if "=" in word and not word.startswith("{"))
        body = self._text(words[-1])
        pad = int(options["PADDED"]) if "PADDED" in options else None
        size, stream = int(options.get("SIZE", frames.FRAME)), self._wire.stream(number)
        sent = self._wire.upload(number, body, last, size=size, pad=pad)
        # After the answer has ended or the stream is reset, the rest of the body is not needed.
        if not sent and not stream.ended and stream.reset is None:
            self.problems.append(f"the windows do not let the body of {len(body)} bytes through")

    def _overflow(self, number: int) -> None:
        """More DATA at once than either window allows."""
        stream = self._wire.stream(number)
        size = max(stream.window, self._wire.window) + 4 * frames.FRAME
        self._wire.send(frame(frames.DATA, 0, number, bytes(frames.FRAME)) * (size // frames.FRAME))

    def _head(self, step: Step, number: int, method: str, path: str, words: list[str]) -> None:
        fields: list[Field] = []
        if method == "CONNECT":
            fields = [(b":method", b"CONNECT"), (b":authority", self._text(path))]
        elif method:
            fields = frames.get(self.names["host"], "", self._scheme, method)
            fields[3] = (b":path", self._text(path))
        block, added = self._edited(fields, step.edits)
        flags = END_HEADERS | (0 if "open" in words or not method and "END_STREAM" not in words else END_STREAM)
        options = dict(word.split("=") for word in words if "=" in word)
        if "FIRST" in options:
            flags &= ~END_HEADERS
            at = int(options["FIRST"])
            block, self._rest = block[:at], block[at:]
        if "PRIORITY" in options:
            parent, weight = (int(value) for value in options["PRIORITY"].split(","))
            flags |= frames.WITH_PRIORITY
            block = struct.pack(">IB", parent, weight) + block
        if "PADDED" in options:
            flags |= frames.PADDED
            pad = int(options["PADDED"])
            block = bytes([pad]) + block + bytes(0 if "short" in words else pad)
        self._last = max(self._last, number & 0x7FFF_FFFF)
        self._wire.stream(number & 0x7FFF_FFFF)
        self._wire.send(frame(frames.HEADERS, flags, number, block))

    def _edited(self, fields: list[Field], edits: list[tuple[str, str]]) -> tuple[bytes, list[Field]]:
        """The block, with fields added, put first, replaced, removed, or with raw bytes (`~`) at the end."""
        raw_first, raw = b"", b""
        for edit, line in edits:
            name, _, value = (line + " " if line.endswith(":") else line).partition(": ")
            field = (self._text(name), self._text(value))
            if edit == "+":
                raw += frames.block([field])
            elif edit == "^":
                fields.insert(0, field)
            elif edit == "=":
                fields = [field if one[0] == field[0] else one for one in fields]
            elif edit == "-":
                fields = [one for one in fields if one[0] != self._text(line)]
            elif line.startswith("first "):
                raw_first += self._packed(line.removeprefix("first "))
            else:
                raw += self._packed(line)
        return raw_first + frames.block(fields) + raw, fields

    def _packed(self, line: str) -> bytes:
        """Raw bytes, or `huffman|added|never NAME: VALUE` for a field in another representation."""
        way, _, rest = line.partition(" ")
        if way not in ("huffman", "added", "never"):
            return self._text(line)
        name, _, value = rest.partition(": ")
        first = {"huffman": 0, "added": 0x40, "never": 0x10}[way]
        return frames.compression.literal(self._text(name), self._text(value), first, way == "huffman")

    def _setting(self, word: str) -> tuple[int, int]:
        name, _, value = word.partition("=")
        return int(frames.SETTING_NAMES.get(name, name)), int(value)

    def _frame(self, verb: str, words: list[str]) -> bytes:
        if verb == "BYTES":
            return self._text(words[0])
        if verb == "SETTINGS":
            pairs = [self._setting(word) for word in words if "=" in word]
            return frames.settings(pairs, frames.ACK if "ACK" in words else 0)
        if verb == "FRAME":
            kind, flags, number, *rest = words
            lied = int(rest[1]) if len(rest) > 1 else None
            at = int(number, 0)
            if kind == "HEADERS" and at:
                self._last = max(self._last, at)
                self._wire.stream(at)
            return frame(
                int(frames.TYPES.get(kind, kind)), int(flags, 0), at, self._text(rest[0] if rest else ""), lied
            )
        if verb in ("PING", "GOAWAY"):
            payload = (
                self._text(words[-1]) if verb == "PING" else struct.pack(">II", int(words[0]), self._code(words[1]))
            )
            flags = frames.ACK if "ACK" in words else 0
            return frame(frames.TYPES[verb], flags, 0, payload)
        number = int(words[0])
        if verb == "WINDOW_UPDATE":
            return frame(frames.WINDOW_UPDATE, 0, number, struct.pack(">I", int(words[1])))
        if verb == "RST_STREAM":
            return frame(frames.RST_STREAM, 0, number, struct.pack(">I", self._code(words[1])))
        if verb == "PRIORITY":
            return frame(frames.PRIORITY, 0, number, struct.pack(">IB", int(words[1]), int(words[2])))
        if verb == "CONTINUATION":
            return self._continuation(number, words[1:])
        if verb == "DATA":
            return self._data(number, words[1:])
        raise ValueError(f"{verb} cannot be sent")

    def _code(self, name: str) -> int:
        return frames.CODES.index(name) if name in frames.CODES else int(name, 0)

    def _continuation(self, number: int, words: list[str]) -> bytes:
        options = dict(word.split("=") for word in words if "=" in word)
        at = int(options.get("NEXT", len(self._rest)))
        part, self._rest = self._rest[:at], self._rest[at:]
        flags = (END_HEADERS if "END_HEADERS" in words else 0) | (1 if "END_STREAM" in words else 0)
        return frame(frames.CONTINUATION, flags, number, part)

    def _data(self, number: int, words: list[str]) -> bytes:
        flags, pad, text = 0, None, ""
        for word in words:
            if word == "END_STREAM":
                flags |= END_STREAM
            elif word.startswith("PADDED="):
                pad, flags = int(word[7:]), flags | frames.PADDED
            else:
                text = word
        payload = self._text(text)
        stream = self._wire.stream(number)
        stream.window -= len(payload)
        self._wire.window -= len(payload)
        return frame(frames.DATA, flags, number, payload if pad is None else bytes([pad]) + payload + bytes(pad))

    # --- What must come ---

    def _outcome(self, step: Step) -> str:
        wire, words = self._wire, step.words
        if words[0] == "PONG":
            wire.until(lambda: self._text(words[1]) in wire.pongs)
            return "" if self._text(words[1]) in wire.pongs else f"PING acknowledged: {wire.pongs}"
        if words[0] == "ACKS":
            wire.until(lambda: wire.acks >= int(words[1]))
            return "" if wire.acks == int(words[1]) else f"{wire.acks} SETTINGS acknowledged"
        if words[0] == "SETTING":
            name, value = self._setting(words[1].rstrip("?"))
            found = wire.settings.get(name, value if words[1].endswith("?") else None)
            return "" if found == value else f"{found}"
        if words[0] == "TEXT":
            wire.until(lambda: re.match(self._text(words[1]), wire._buffer))
            self._over = True
            return "" if re.match(self._text(words[1]), wire.raw or wire._buffer) else f"{wire.raw or wire._buffer!r}"
        number = None
        if words[0].isdigit():
            number, words = int(words[0]), words[1:]
        outcomes = " ".join(words).split(" | ")
        return self._one_of(number, outcomes)

    def _one_of(self, number: int | None, outcomes: list[str]) -> str:
        wire = self._wire
        own = {outcome[1:] for outcome in outcomes if outcome.startswith("!")}
        outcomes = [outcome.lstrip("!") for outcome in outcomes]
        matches = lambda: any(outcome in self._found(number) for outcome in outcomes)  # noqa: E731
        if number is None:
            wire.until(lambda: matches() or wire.ended, LIMIT)
        else:
            stream = wire.stream(number)
            over = lambda: stream.ended or stream.reset is not None or wire.goaway and wire.goaway[1]  # noqa: E731
            wire.until(lambda: matches() or over(), LIMIT)
            # What is awaited may follow the end of a stream.
            wire.until(matches, 1)
        found = self._found(number)
        for outcome in outcomes:
            if outcome in found:
                self.deviates |= outcome in own
                return self._end() if outcome.startswith(("GOAWAY", "closed")) else ""
        return f"got {', '.join(found) or 'nothing'}"

    def _found(self, number: int | None) -> list[str]:
        """The words for what has come."""
        wire, found = self._wire, []
        if number is not None:
            stream = wire.stream(number)
            if stream.head is not None:
                status = str(stream.status)
                reason = stream.one("crawl-reason")
                ended = stream.ended or stream.reset == 0
                if ended:
                    found += [f"{status} {reason}"] if reason else []
                    found += [status] if not reason or stream.status >= 400 else []
                elif stream.reset is not None:
                    found.append(f"{status} cut")
                else:
                    found.append(f"{status} begins")
            if stream.reset:
                found.append(f"RST {_code_name(stream.reset)}")
        if wire.goaway and wire.goaway[1]:
            found.append(f"GOAWAY {_code_name(wire.goaway[1])}")
        elif wire.ended:
            found.append("closed")
        return found

    def _end(self) -> str:
        """A connection error ends the connection."""
        self._over = True
        self._wire.until(lambda: self._wire.ended, LIMIT)
        return "" if self._wire.ended else "GOAWAY, but the connection stays open"

    def _part(self, step: Step) -> str:
        stream = self._wire.stream(int(step.words[0]))
        rest = " ".join(step.words[1:])
        if step.kind in ("<=", "<~"):
            wanted = self._text(rest)
            holds = re.search(wanted, stream.body, re.DOTALL) if step.kind == "<~" else stream.body == wanted
            if step.kind == "<~":
                self._wire.until(lambda: re.search(wanted, stream.body, re.DOTALL), LIMIT)
                holds = re.search(wanted, stream.body, re.DOTALL)
            return "" if holds else f"the body is {stream.body[:200]!r} ({len(stream.body)} bytes)"
        fields = collections.defaultdict(list)
        for name, value in (stream.trailers if step.kind == "<t" else stream.head) or []:
            fields[name].append(value)
        name, _, value = rest.partition(": ")
        if step.kind == "<-":
            return f"it has {fields[name.encode()]}" if name.encode() in fields else ""
        wanted = [self._text(one) for one in value.split(" || ")] if value else []
        return "" if fields[name.encode()] == wanted else f"it has {fields[name.encode()]}"

    def _alive(self) -> None:
        """The connection still serves requests."""
        wire = self._wire
        number = self._last + 2 if self._last % 2 else self._last + 1
        number = max(number, 1)
        if number > 0x7FFF_FFFF:
            wire.send(frame(frames.PING, 0, 0, b"areyouok"))
            if not wire.until(lambda: b"areyouok" in wire.pongs):
                self.problems.append("the connection does not answer PING afterwards")
            return
        stream = wire.stream(number)
        wire.send(frames.head(number, frames.get(self.names["host"], ALIVE.decode(), self._scheme)))
        wire.until(lambda: stream.ended or stream.reset is not None or wire.goaway)
        if not stream.ended or stream.status != 200:
            found = ", ".join(self._found(number)) or "nothing"
            self.problems.append(f"the connection does not serve another request: {found}")

    # --- What the origin got ---

    def _arrived(self, origin: Origin) -> None:
        row = self._row
        manner = row.settings.get("origin", "")
        if "any" in manner:
            return
        if manner == "once":
            got, problems = origin.requests()
            self.problems += problems
            if len([message for message in got if message.whole]) > 1:
                self.problems.append(f"the origin received {[message.line for message in got]}")
            return
        if row.arrives:
            wanted, _ = read(self._text(row.arrives))
            self._wait(lambda: len(origin.requests()[0]) >= len(wanted))
            got, problems = origin.requests()
            self.problems += problems
            self._compare(got, wanted)
            return
        if row.expects(r"\b2\d\d( |$)"):
            self.problems += origin.requests()[1]
            return
        time.sleep(0.05)
        got, problems = origin.requests()
        self.problems += problems
        got = [message for message in got if message.whole] if "never whole" in manner else got
        self.problems += [f"the origin received {message.line!r} {message.fields}" for message in got]

    @staticmethod
    def _wait(holds) -> None:
        end = time.monotonic() + 2
        while not holds() and time.monotonic() < end:
            time.sleep(0.02)

    def _compare(self, got: list[Message], wanted: list[Message]) -> None:
        if len(got) != len(wanted):
            self.problems.append(f"the origin received {len(got)} requests, not {len(wanted)}: {[m.line for m in got]}")
        order = lambda message: message.line  # noqa: E731
        for one, other in zip(sorted(got, key=order), sorted(wanted, key=order)):
            for what in ("line", "fields", "body", "trailers", "whole"):
                mine, theirs = self._plain(getattr(one, what)), self._plain(getattr(other, what))
                if mine != theirs:
                    self.problems.append(f"the origin received the {what} {mine!r}, not {theirs!r}")

    def _plain(self, value):
        """Fields in the order of their names; the framing is the origin connection's affair."""
        if not isinstance(value, list):
            return value
        own = (b"transfer-encoding", b"content-length")
        fields = [(name, _via(content)) if name == b"via" else (name, content) for name, content in value]
        return sorted((field for field in fields if field[0] not in own), key=lambda field: field[0])


def _via(value: bytes) -> bytes:
    """`Via` with one spelling of the version and one name for every proxy."""
    return re.sub(rb"^(\d)(\.[01])? crawlgate[\w-]*$", rb"\1 crawlgate", value)


def _code_name(code: int) -> str:
    return frames.CODES[code] if code < len(frames.CODES) else hex(code)


def tunnel(port: int, host: str) -> socket.socket:
    """A tunnel to a host, by CONNECT over HTTP/1.1."""
    connection = socket.create_connection(("127.0.0.1", port), 10)
    connection.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    received = b""
    while b"\r\n\r\n" not in received:
        data = connection.recv(4096)
        if not data:
            break
        received += data
    if not received.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(f"CONNECT got {received[:100]!r}")
    return connection


def secure(connection: socket.socket, name: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    connection.settimeout(10)
    return context.wrap_socket(connection, server_hostname=name)
