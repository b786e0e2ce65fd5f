# Two spiders of one project, with arguments that are computed. Written by hand.
import os

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

DOMAINS = ("docs.example.com",)


class DocsSpider(CrawlSpider):
    name = "docs"
    allowed_domains = DOMAINS
    start_urls = ["https://docs.example.com/"]
    rules = [
        Rule(LinkExtractor(allow_domains="docs.example.com", deny="/old/"), callback="page"),
        Rule(LinkExtractor(allow=os.environ.get("ALSO")), callback="other"),
        Rule(LinkExtractor(allow=(r"^https://docs\.example\.com/(?:en|de)/"), deny=f"/{os.name}/"), callback="languages"),
    ]

    def page(self, response):
        pass


class BlogSpider(CrawlSpider):
    name = "blog"
    start_urls = ("http://blog.example.org/index.html#top",)
    rules = (Rule(LinkExtractor(allow=r"//blog\.example\.org/\d{4}/", tags=("a",), unique=True), "entry", follow=False),)
    custom_settings = {"DEPTH_LIMIT": 3}
