"""HPACK (RFC 7541): a strict decoder for answers, and an encoder that writes what it is told to, right or wrong."""

from __future__ import annotations

from collections.abc import Iterator

# Name and value of the static table, from index 1 on.
_STATIC = """\
:authority|;:method|GET;:method|POST;:path|/;:path|/index.html;:scheme|http;:scheme|https;:status|200;:status|204;
:status|206;:status|304;:status|400;:status|404;:status|500;accept-charset|;accept-encoding|gzip, deflate;
accept-language|;accept-ranges|;accept|;access-control-allow-origin|;age|;allow|;authorization|;cache-control|;
content-disposition|;content-encoding|;content-language|;content-length|;content-location|;content-range|;
content-type|;cookie|;date|;etag|;expect|;expires|;from|;host|;if-match|;if-modified-since|;if-none-match|;if-range|;
if-unmodified-since|;last-modified|;link|;location|;max-forwards|;proxy-authenticate|;proxy-authorization|;range|;
referer|;refresh|;retry-after|;server|;set-cookie|;strict-transport-security|;transfer-encoding|;user-agent|;vary|;
via|;www-authenticate|"""
STATIC = [tuple(part.encode() for part in row.strip().split("|")) for row in _STATIC.split(";")]

# How many bits each symbol has, as LENGTH or LENGTH*COUNT. The code is canonical, so that these determine it; the last
# symbol is EOS.
_LENGTHS = """\
13 23 28*7 24 30 28*2 30 28*8 30 28*9 6 10*2 12 13 6 8 11 10*2 8 11 8 6*3 5*3 6*7 7 8 15 6 12 10 13 6 7*22 8 7 8 13 19
13 14 6 15 5 6 5 6 5 6*3 5 7*2 6*3 5 6 7 6 5*2 6 7*5 15 11 14 13 28 20 22 20*2 22*3 23 22 23*5 24 23 24*2 22 23 24 23*4
21 22 23 22 23*2 24 22 21 20 22*2 23*2 21 23 22*2 24 21 22 23*2 21*2 22 21 23 22 23*2 20 22*3 23 22*2 23 26*2 20 19 22
23 22 25 26*3 27*2 26 24 25 19 21 26 27*2 26 27 24 21*2 26*2 28 27*3 20 24 20 21 22 21*2 23 22*2 25*2 24*2 26 23 26 27
26*2 27*5 28 27*5 26 30"""
EOS = 256


def _codes() -> list[tuple[int, int]]:
    """Code and number of bits of each symbol."""
    lengths: list[int] = []
    for word in _LENGTHS.split():
        bits, _, count = word.partition("*")
        lengths += [int(bits)] * int(count or 1)
    codes, code, before = [(0, 0)] * len(lengths), 0, 0
    for symbol in sorted(range(len(lengths)), key=lambda one: (lengths[one], one)):
        code <<= lengths[symbol] - before
        before = lengths[symbol]
        codes[symbol] = (code, before)
        code += 1
    return codes


CODES = _codes()
_SYMBOLS = {(bits, code): symbol for symbol, (code, bits) in enumerate(CODES)}


class CompressionError(ValueError):
    """A block that RFC 7541 does not allow."""


def integer(value: int, prefix: int, first: int = 0) -> bytes:
    """An integer (5.1) whose first byte has `first` in its other bits."""
    limit = (1 << prefix) - 1
    if value < limit:
        return bytes([first | value])
    out, value = [first | limit], value - limit
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def huffman(text: bytes, ending: str = "") -> bytes:
    """The bytes of a string in Huffman code; `ending` replaces the usual filling with ones."""
    bits = "".join(format(CODES[byte][0], f"0{CODES[byte][1]}b") for byte in text) + ending
    bits += "1" * (-len(bits) % 8)
    return int("1" + bits, 2).to_bytes(len(bits) // 8 + 1, "big")[1:] if bits else b""


def string(text: bytes, coded: bool = False) -> bytes:
    """A string literal (5.2)."""
    if coded:
        packed = huffman(text)
        return integer(len(packed), 7, 0x80) + packed
    return integer(len(text), 7) + text


def literal(name: bytes, value: bytes, first: int = 0, coded: bool = False) -> bytes:
    """A field whose name is not indexed (6.2): 0 is without indexing, 0x10 never indexed, 0x40 added to the table."""
    return bytes([first]) + string(name, coded) + string(value, coded)


class Decoder:
    """The decoder of one connection's answers. Its table is at most what the client's SETTINGS allow."""

    def __init__(self) -> None:
        self._table: list[tuple[bytes, bytes]] = []
        self._size = 0
        self._limit = 4096
        # What the client has announced; an encoder begins its next block with an update if that is smaller.
        self.allowed = 4096

    def fields(self, block: bytes) -> list[tuple[bytes, bytes]]:
        """The fields of one block, in their order."""
        self._block, self._at = block, 0
        return list(self._each())

    def _each(self) -> Iterator[tuple[bytes, bytes]]:
        begun = False
        while self._at < len(self._block):
            first = self._block[self._at]
            if first & 0xE0 == 0x20:
                if begun:
                    raise CompressionError("a size update after a field")
                self._resize(self._integer(5))
                continue
            if not begun and self._limit > self.allowed:
                raise CompressionError(f"the table has {self._limit} bytes, {self.allowed} are allowed")
            begun = True
            if first & 0x80:
                yield self._entry(self._integer(7))
            else:
                yield self._literal(first)

    def _literal(self, first: int) -> tuple[bytes, bytes]:
        added = bool(first & 0x40)
        index = self._integer(6 if added else 4)
        field = (self._entry(index)[0] if index else self._string(), self._string())
        if added:
            self._table.insert(0, field)
            self._size += _cost(field)
            self._evict()
        return field

    def _resize(self, limit: int) -> None:
        if limit > self.allowed:
            raise CompressionError(f"a table of {limit} bytes, {self.allowed} are allowed")
        self._limit = limit
        self._evict()

    def _evict(self) -> None:
        while self._size > self._limit:
            self._size -= _cost(self._table.pop())

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if not 0 < index <= len(STATIC) + len(self._table):
            raise CompressionError(f"no entry {index}")
        return STATIC[index - 1] if index <= len(STATIC) else self._table[index - len(STATIC) - 1]

    def _byte(self) -> int:
        if self._at >= len(self._block):
            raise CompressionError("the block is cut")
        self._at += 1
        return self._block[self._at - 1]

    def _integer(self, prefix: int) -> int:
        limit = (1 << prefix) - 1
        value = self._byte() & limit
        if value < limit:
            return value
        for shift in range(0, 28, 7):
            byte = self._byte()
            value += (byte & 127) << shift
            if byte < 128:
                return value
        raise CompressionError("an integer that is too long")

    def _string(self) -> bytes:
        coded = self._at < len(self._block) and self._block[self._at] & 0x80
        size = self._integer(7)
        text = self._block[self._at : self._at + size]
        if len(text) < size:
            raise CompressionError("the block is cut")
        self._at += size
        return _plain(text) if coded else text


def _cost(field: tuple[bytes, bytes]) -> int:
    return len(field[0]) + len(field[1]) + 32


def _plain(text: bytes) -> bytes:
    out, code, bits = bytearray(), 0, 0
    for byte in text:
        for shift in range(7, -1, -1):
            code, bits = code << 1 | byte >> shift & 1, bits + 1
            symbol = _SYMBOLS.get((bits, code))
            if symbol == EOS:
                raise CompressionError("EOS in a string")
            if symbol is not None:
                out.append(symbol)
                code, bits = 0, 0
    if bits > 7 or code != (1 << bits) - 1:
        raise CompressionError("a string that does not end with ones")
    return bytes(out)
