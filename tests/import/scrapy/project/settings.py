# Settings of a project, written by hand after the template of `scrapy startproject`.
BOT_NAME = "shop"

SPIDER_MODULES = ["shop.spiders"]
NEWSPIDER_MODULE = "shop.spiders"

USER_AGENT = "ShopBot (+https://www.example.com/bot)"

ROBOTSTXT_OBEY = True

CONCURRENT_REQUESTS = 32
CONCURRENT_REQUESTS_PER_DOMAIN = 2
DOWNLOAD_DELAY = 2.5
DOWNLOAD_MAXSIZE = 20 * 1024 * 1024
DEPTH_LIMIT = 5
URLLENGTH_LIMIT = 200

ITEM_PIPELINES = {
    "shop.pipelines.Prices": 300,
}
MONGO_URI = "mongodb://shop:hunter2@db.example/prices"

AUTOTHROTTLE_ENABLED = True
AUTOTHROTTLE_START_DELAY = 5
AUTOTHROTTLE_MAX_DELAY = 60
AUTOTHROTTLE_TARGET_CONCURRENCY = 2.0
