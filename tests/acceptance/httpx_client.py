"""Python's httpx with HTTP/2: requests the URLs of standard input, eight at once, and writes answers as JSON lines.

    httpx_client.py PROXY CERTIFICATES

Redirects are not followed. A URL that httpx would write in another way is left out, and so are hosts that it cannot
name in CONNECT or in TLS: IPv6 addresses, and names with a trailing dot.
"""

import asyncio
import base64
import json
import ssl
import sys

import httpx

PROXY, TRUST = sys.argv[1:]


def dotted(url: str) -> bool:
    return httpx.URL(url).host.endswith(".")


async def ask(client: httpx.AsyncClient, url: str) -> dict:
    try:
        async with client.stream("GET", url, follow_redirects=False, timeout=60) as response:
            headers: dict[str, list[str]] = {}
            for name, value in response.headers.multi_items():
                headers.setdefault(name.lower(), []).append(value)
            body = b"".join([part async for part in response.aiter_raw()])
            answer = {"status": response.status_code, "headers": headers, "body": body, "error": ""}
            return {"url": url, **answer, "version": response.http_version}
    except (httpx.HTTPError, OSError, ValueError) as error:
        return {"url": url, "status": 0, "headers": {}, "body": b"", "error": repr(error)}


async def main() -> None:
    urls = [line.rstrip("\n") for line in sys.stdin]
    urls = [url for url in urls if str(httpx.URL(url)) == url and "[" not in url and not dotted(url)]
    gate = asyncio.Semaphore(8)
    context = ssl.create_default_context(cafile=TRUST)

    async def one(client: httpx.AsyncClient, url: str) -> dict:
        async with gate:
            return await ask(client, url)

    # Settings of the machine that runs this would mix into the test.
    async with httpx.AsyncClient(http2=True, proxy=PROXY, verify=context, trust_env=False) as client:
        for answer in await asyncio.gather(*(one(client, url) for url in urls)):
            print(json.dumps(answer | {"body": base64.b64encode(answer["body"]).decode()}))


asyncio.run(main())
