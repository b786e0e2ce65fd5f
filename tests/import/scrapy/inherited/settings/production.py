from .base import *

DEPTH_LIMIT = 6
DOWNLOAD_SLOTS = {
    "slow.example.com": {"concurrency": 1, "delay": 10},
}
