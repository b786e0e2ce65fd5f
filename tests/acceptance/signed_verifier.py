"""Verifies signatures by the library `http-message-signatures`, for `signed.py`: a question on standard input, as JSON.

A request is also changed in each part that is covered, and its signature tried again.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import sys
import types

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver
from http_message_signatures.algorithms import ED25519
from http_message_signatures.exceptions import HTTPMessageSignaturesException


class Keys(HTTPSignatureKeyResolver):
    """The keys of a directory, by their thumbprints."""

    def __init__(self, directory: dict) -> None:
        self._keys = {key["kid"]: key["x"] for key in json.loads(directory["body"])["keys"]}
        self.used: list[str] = []

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey:
        self.used.append(key_id)
        return Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(self._keys[key_id] + "=="))

    def resolve_private_key(self, key_id: str):
        raise NotImplementedError


def request(found: dict) -> types.SimpleNamespace:
    headers = {name.title(): value for name, value in found["headers"].items()}
    return types.SimpleNamespace(method=found["method"], url=found["url"], headers=headers, body=None)


def verifies(message, keys: Keys, tag: str) -> list[bool]:
    """A verdict on each signature of the message; none if the fields cannot be read."""
    verifier = HTTPMessageVerifier(signature_algorithm=ED25519, key_resolver=keys)
    try:
        return [True for _ in verifier.verify(message, expect_tag=tag)]
    except (HTTPMessageSignaturesException, KeyError, ValueError):
        return [False]


def changes(found: dict) -> dict[str, dict]:
    """The request with one covered part changed."""
    named: dict[str, dict] = {name: copy.deepcopy(found) for name in (
        "method", "authority", "path", "signature-agent", "created", "expired",
    )}  # fmt: skip
    named["method"]["method"] = "POST"
    named["authority"]["url"] = found["url"].replace("://", "://x.", 1)
    named["path"]["url"] = re.sub(r"(://[^/]*/)", r"\1x", found["url"], count=1)
    _replace(named["signature-agent"], "signature-agent", "bot.example.com", "bot.example.org")
    created = re.search(r"created=(\d+)", _field(found, "signature-input"))[1]
    _replace(named["created"], "signature-input", f"created={created}", f"created={int(created) - 1}")
    expires = re.search(r"expires=(\d+)", _field(found, "signature-input"))[1]
    _replace(named["expired"], "signature-input", f"expires={expires}", f"expires={int(created) + 1}")
    return named


def _field(found: dict, name: str) -> str:
    return next(value for key, value in found["headers"].items() if key.lower() == name)


def _replace(found: dict, name: str, old: str, new: str) -> None:
    key = next(key for key in found["headers"] if key.lower() == name)
    assert old in found["headers"][key]
    found["headers"][key] = found["headers"][key].replace(old, new)


def directory_verdicts(directory: dict) -> list[bool]:
    """Whether each key of the directory has signed it for the authority."""
    asked = request({"method": "GET", "url": f"https://{directory['authority']}/", "headers": {}})
    verdicts = []
    for number, _ in enumerate(json.loads(directory["body"])["keys"], 1):
        headers = dict(directory["fields"])
        for name in ("Signature", "Signature-Input"):
            members = re.split(r", (?=key\d+=)", headers[name])
            headers[name] = next(member for member in members if member.startswith(f"key{number}="))
        body = directory["body"].encode()
        message = types.SimpleNamespace(status_code=200, headers=headers, body=body, content=body, request=asked)
        verdicts += verifies(message, Keys(directory), "http-message-signatures-directory")
    return verdicts


def main() -> None:
    question = json.load(sys.stdin)
    answers = []
    for found in question["requests"]:
        keys = Keys(question["directory"])
        valid = verifies(request(found), keys, "web-bot-auth") == [True]
        changed = {
            name: verifies(request(one), Keys(question["directory"]), "web-bot-auth") == [True]
            for name, one in changes(found).items()
        }
        answers.append({"key": keys.used[0] if keys.used else None, "valid": valid, "changed": changed})
    print(json.dumps({"directory": directory_verdicts(question["directory"]), "requests": answers}))


if __name__ == "__main__":
    main()
