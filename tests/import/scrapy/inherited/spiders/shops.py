from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import Rule

from .base import NO_CART, ShopSpider, WithSearch


class BooksSpider(ShopSpider):
    name = "books"
    allowed_domains = ["books.example.com"]
    start_urls = ["https://books.example.com/"]


class ToysSpider(WithSearch, ShopSpider):
    name = "toys"
    start_urls = ["https://search.example.com/toys"]
    rules = [Rule(LinkExtractor(deny=NO_CART))]
    download_delay = 2


class MusicSpider(ShopSpider):
    name = "music"

    def __init__(self, domain, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.allowed_domains = [domain]
