# What the spiders of all shops have in common. Written by hand.
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

NO_CART = r"/(?:cart|login)\b"


class ShopSpider(CrawlSpider):
    custom_settings = {"URLLENGTH_LIMIT": 300}
    rules = (Rule(LinkExtractor(allow=r"/p/\d+", deny=NO_CART), callback="product"),)

    def product(self, response):
        pass


class WithSearch:
    search = "/search"
    allowed_domains = ["search.example.com"]
