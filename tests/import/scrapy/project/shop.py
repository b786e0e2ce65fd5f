"""A spider with rules, written by hand."""
import re

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

HOST = "shop.example.com"
BASE = r"^https?://" + r"shop\.example\.com"


class ShopSpider(CrawlSpider):
    name = "shop"
    allowed_domains = [HOST, "img.example.com"]
    start_urls = [
        "https://shop.example.com",
        "https://www.example.org/partners?of=shop",
    ]

    rules = (
        # Categories, but not their sorted views
        Rule(
            LinkExtractor(
                allow=(BASE + r"/c/\d+", r"/sale/"),
                deny=[r"[?&](?:sort|order)=", re.compile("print", re.IGNORECASE)],
            ),
            follow=True,
        ),
        Rule(
            LinkExtractor(
                allow=r"/p/[a-z0-9-]+\.html$",
                deny_domains="old.shop.example.com",
                deny_extensions=["pdf", "zip"],
                restrict_css=".product",
            ),
            callback="parse_product",
        ),
    )

    def parse_product(self, response):
        yield {"title": response.css("h1::text").get()}
        yield response.follow("/reviews/" + response.css("p::attr(id)").get(), self.parse_reviews)
