"""Crawlee for Python over HTTP/2: an HttpCrawler requests the URLs of standard input, and writes answers as JSON lines.

    crawlee_client.py PROXY CERTIFICATES

Redirects are not followed and nothing is repeated, so that each URL is one request; the rest are Crawlee's defaults. A URL that
its HTTP client would write in another way is left out, and so are hosts that it cannot name in CONNECT or in TLS (IPv6
addresses, names with a trailing dot), and pages with a content coding or cookies, which it does not show as they were sent.
"""

import asyncio
import base64
import json
import logging
import re
import ssl
import sys
from datetime import timedelta

import httpx2
from crawlee import ConcurrencySettings, Request
from crawlee.configuration import Configuration
from crawlee.crawlers import BasicCrawlingContext, HttpCrawler, HttpCrawlingContext
from crawlee.http_clients import HttpxHttpClient
from crawlee.proxy_configuration import ProxyConfiguration
from crawlee.storage_clients import MemoryStorageClient

PROXY, TRUST = sys.argv[1:]
ERRORS = range(400, 600)
# Pages of the site that Crawlee does not show as they were sent.
UNLIKE_SENT = re.compile("gzip|cookies")


def is_sent_as_written(url: str) -> bool:
    return str(httpx2.URL(url)) == url and "[" not in url and not httpx2.URL(url).host.endswith(".") and not UNLIKE_SENT.search(url)


def write(url: str, answer: dict) -> None:
    print(json.dumps({"url": url} | answer | {"body": base64.b64encode(answer["body"]).decode()}))


async def main() -> None:
    urls = [url for url in (line.rstrip("\n") for line in sys.stdin) if is_sent_as_written(url)]
    client = HttpxHttpClient(verify=ssl.create_default_context(cafile=TRUST), follow_redirects=False, trust_env=False)
    crawler = HttpCrawler(
        http_client=client,
        proxy_configuration=ProxyConfiguration(proxy_urls=[PROXY]),
        storage_client=MemoryStorageClient(),
        configuration=Configuration(purge_on_start=True),
        concurrency_settings=ConcurrencySettings(min_concurrency=4, max_concurrency=8, desired_concurrency=8),
        ignore_http_error_status_codes=ERRORS,
        max_request_retries=0,
        max_session_rotations=0,
        retry_on_blocked=False,
        use_session_pool=False,
        request_handler_timeout=timedelta(seconds=60),
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def handle(context: HttpCrawlingContext) -> None:
        response = context.http_response
        headers = {name.lower(): [value] for name, value in response.headers.items()}
        answer = {"status": response.status_code, "headers": headers, "body": await response.read(), "error": ""}
        write(context.request.url, answer | {"version": response.http_version})

    @crawler.failed_request_handler
    async def failed(context: BasicCrawlingContext, error: Exception) -> None:
        write(context.request.url, {"status": 0, "headers": {}, "body": b"", "error": repr(error), "version": ""})

    # A URL may occur twice in the table by what Crawlee takes for the same.
    requests = [Request.from_url(url, unique_key=str(index)) for index, url in enumerate(urls)]
    await crawler.run(requests)


logging.disable(logging.CRITICAL)
asyncio.run(main())
