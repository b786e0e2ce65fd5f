#!/bin/sh
# The manual of a product, every night. Written by hand.
wget -m -np -w 2 --random-wait --limit-rate=200k \
  -X '/manual/old,/manual/*/print' --reject-regex '[?&](action|oldid)=' \
  --user=reader --password=hunter2 \
  https://docs.example.com/manual/index.html
