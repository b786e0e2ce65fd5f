"""Certificates of one run, made by openssl: an authority, and the valid and broken certificates of sites."""

from __future__ import annotations

import pathlib
import ssl
import subprocess
from collections.abc import Iterable

_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
_NO_AUTHORITY = ["-addext", "basicConstraints=critical,CA:false"]
# The configuration of `openssl ca`, the only command that issues expired certificates.
_CA_SETTINGS = """\
[ca]
default_ca = it
[it]
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
"""


class Authority:
    """A certificate authority with its files in its own directory; `cert` is the certificate to trust."""

    def __init__(self, folder: pathlib.Path, name: str = "acceptance CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.cert, self._key = folder / "ca.pem", folder / "ca.key"
        own = ["-keyout", self._key, "-out", self.cert, "-subj", f"/CN={name}"]
        _openssl("req", "-x509", *_NEW_KEY, "-days", "2", *own, "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def files(self, hosts: Iterable[str], name: str = "site") -> tuple[pathlib.Path, pathlib.Path]:
        """A certificate for these hosts, and its key."""
        signed = ["-CA", self.cert, "-CAkey", self._key]
        return self._made(name, hosts, "req", "-x509", "-days", "2", *signed)

    def context(self, hosts: Iterable[str], name: str = "site") -> ssl.SSLContext:
        """A server's context, with a certificate for these hosts."""
        return _context(self.files(hosts, name))

    def self_signed(self, host: str) -> ssl.SSLContext:
        """A server's context with a self-signed certificate."""
        return _context(self._made(host, [host], "req", "-x509", "-days", "2"))

    def expired(self, host: str) -> ssl.SSLContext:
        """A server's context, with a certificate of this authority that was valid once."""
        settings, request = self._folder / "ca.conf", self._folder / f"{host}.csr"
        settings.write_text(_CA_SETTINGS.format(folder=self._folder), encoding="utf-8")
        (self._folder / "index.txt").touch()
        (self._folder / "serial").write_text("1000\n", encoding="utf-8")
        cert, key = self._folder / f"{host}.pem", self._folder / f"{host}.key"
        _openssl("req", "-new", *_NEW_KEY, "-keyout", key, "-out", request, *_names(host, [host]))
        dates = ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"]
        signed = ["-config", settings, "-cert", self.cert, "-keyfile", self._key, "-in", request, "-out", cert]
        _openssl("ca", "-batch", "-notext", *dates, *signed)
        return _context((cert, key))

    def _made(self, name: str, hosts: Iterable[str], *command: str | pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
        cert, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        _openssl(*command, *_NEW_KEY, *_names(name, hosts), *_NO_AUTHORITY, "-keyout", key, "-out", cert)
        return cert, key


def _names(name: str, hosts: Iterable[str]) -> list[str]:
    return ["-subj", f"/CN={name}", "-addext", "subjectAltName=" + ",".join(f"DNS:{host}" for host in hosts)]


def _context(files: tuple[pathlib.Path, pathlib.Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


def _openssl(*command: str | pathlib.Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise RuntimeError(f"openssl {command[0]} failed: {done.stderr}")
