"""The Scrapy spider of the acceptance run: follows every link, image and redirect, and records every answer.

Redirects and error statuses come to the callback, so that nothing happens behind the recording.
"""

import base64
import json

import scrapy
from scrapy.http import TextResponse


class EverythingSpider(scrapy.Spider):
    """Arguments: `start` (URLs), `domains` (comma-separated), `out` (file of JSON lines), `follow` (no: only those)."""

    name = "everything"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "RETRY_ENABLED": False,
        "REDIRECT_ENABLED": False,
        "METAREFRESH_ENABLED": False,
        "COOKIES_ENABLED": False,
        "COMPRESSION_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "CONCURRENT_REQUESTS": 16,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
        "DOWNLOAD_DELAY": 0,
        "DOWNLOAD_TIMEOUT": 60,
        "DOWNLOAD_FAIL_ON_DATALOSS": True,
        "URLLENGTH_LIMIT": 8000,
    }

    def __init__(self, start, out, domains="", follow="yes", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = start.split(" ")
        self.allowed_domains = domains.split(",") if domains else []
        self._follow = follow == "yes"
        self._seen = set()
        self._out = open(out, "w", encoding="utf-8")

    def closed(self, reason):
        self._out.close()

    async def start(self):
        for url in self.start_urls:
            for request in self._ask(url):
                yield request

    def parse(self, response):
        headers = {
            name.decode("latin-1").lower(): [value.decode("latin-1") for value in values]
            for name, values in response.headers.items()
        }
        self._record(response.url, response.status, headers, response.body, "")
        if not self._follow:
            return
        # A refusal has no links; if it had, following them would show up as URLs that the table does not know.
        if isinstance(response, TextResponse):
            for href in response.xpath("//a/@href | //img/@src").getall():
                yield from self._ask(response.urljoin(href))
        if location := response.headers.get("Location"):
            yield from self._ask(response.urljoin(location.decode("latin-1")))

    def failed(self, failure):
        self._record(failure.request.url, 0, {}, b"", repr(failure.value))

    def _ask(self, url):
        """Each spelling once: Scrapy's own filter would take `/%63gi` and `/cgi` for one."""
        url, _, _fragment = url.partition("#")
        if url not in self._seen:
            self._seen.add(url)
            yield scrapy.Request(
                url, callback=self.parse, errback=self.failed, dont_filter=True, meta={"handle_httpstatus_all": True}
            )

    def _record(self, url, status, headers, body, error):
        item = {
            "url": url,
            "status": status,
            "headers": headers,
            "body": base64.b64encode(body).decode(),
            "error": error,
        }
        self._out.write(json.dumps(item) + "\n")
