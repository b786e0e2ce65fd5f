"""A Scrapy spider as users write it, with Scrapy's defaults: follows all links of `start` and prints what it got."""

import sys

import scrapy


class LinkSpider(scrapy.Spider):
    name = "links"

    def __init__(self, start, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [start]

    def parse(self, response):
        print(response.url, file=sys.stdout, flush=True)
        yield from response.follow_all(css="a")
