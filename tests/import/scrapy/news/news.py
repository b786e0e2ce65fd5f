# A spider without rules: its code decides. Written by hand.
import scrapy


class NewsSpider(scrapy.Spider):
    name = "news-bot"
    allowed_domains = ["example.com", "example.org", "https://example.net/"]
    start_urls = ["https://www.example.com/news/"]
    custom_settings = {
        "DOWNLOAD_DELAY": 1,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "ROBOTSTXT_OBEY": False,
        "HTTPCACHE_ENABLED": True,
    }

    def parse(self, response):
        for link in response.css("a.more::attr(href)"):
            yield scrapy.Request(response.urljoin(link.get()), callback=self.parse)
