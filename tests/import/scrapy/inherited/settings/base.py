# Settings of all environments. Written by hand.
BOT_NAME = "shops"
ROBOTSTXT_OBEY = True
DOWNLOAD_DELAY = 1
DEPTH_LIMIT = 3
