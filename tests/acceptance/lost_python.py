"""Scripts as users write them, with the defaults of their libraries: `lost_python.py LIBRARY PROXY`, URLs on standard input.

requests with 16 threads, httpx and aiohttp with everything at once, and Crawlee, which follows the links of the first
URL. Prints the URLs that it got with 200.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys

LIBRARY, PROXY = sys.argv[1:]
URLS = sys.stdin.read().split()
# Only URLs go to standard output, whatever a library prints.
OUT, sys.stdout = sys.stdout, sys.stderr


def got(url: str) -> None:
    print(url, file=OUT, flush=True)


def with_requests() -> None:
    import requests

    def fetch(url: str) -> None:
        try:
            if requests.get(url, proxies={"http": PROXY, "https": PROXY}).status_code == 200:
                got(url)
        except requests.RequestException as error:
            print(repr(error), file=sys.stderr)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(fetch, URLS))


async def with_httpx() -> None:
    import httpx

    async with httpx.AsyncClient(proxy=PROXY) as client:
        for answer in await asyncio.gather(*(client.get(url) for url in URLS), return_exceptions=True):
            if isinstance(answer, BaseException):
                print(repr(answer), file=sys.stderr)
            elif answer.status_code == 200:
                got(str(answer.url))


async def with_aiohttp() -> None:
    import aiohttp

    async def fetch(session: aiohttp.ClientSession, url: str) -> None:
        try:
            async with session.get(url, proxy=PROXY) as answer:
                await answer.read()
                if answer.status == 200:
                    got(url)
        except (aiohttp.ClientError, TimeoutError) as error:
            print(repr(error), file=sys.stderr)

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(fetch(session, url) for url in URLS))


async def with_crawlee() -> None:
    from crawlee.crawlers import BeautifulSoupCrawler, BeautifulSoupCrawlingContext
    from crawlee.proxy_configuration import ProxyConfiguration
    from crawlee.storage_clients import MemoryStorageClient

    crawler = BeautifulSoupCrawler(
        proxy_configuration=ProxyConfiguration(proxy_urls=[PROXY]), storage_client=MemoryStorageClient()
    )

    @crawler.router.default_handler
    async def handle(context: BeautifulSoupCrawlingContext) -> None:
        got(context.request.url)
        await context.enqueue_links()

    await crawler.run(URLS[:1])


match LIBRARY:
    case "requests":
        with_requests()
    case "httpx":
        asyncio.run(with_httpx())
    case "aiohttp":
        asyncio.run(with_aiohttp())
    case "crawlee":
        asyncio.run(with_crawlee())
    case _:
        sys.exit(f"no such library: {LIBRARY}")
