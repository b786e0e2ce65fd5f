#!/usr/bin/env python3
"""Writes a policy of many rules to standard output: 60 % `domain`, 25 % `url_prefix`, 10 % `contains`, 5 % `regex`.

    benches/mixed_policy.py 100000 > mixed.yaml

The same number gives the same policy. docs/speed.md uses it for the figures of large policies.
"""

import random
import sys

SYLLABLES = "ba be bi bo da de di do fa fe ga go ka ke ki ko la le li lo ma me mi mo na ne ni no ra re ri ro sa se si so ta te ti to".split()
EXPRESSIONS = [
    "^https?://(www\\.)?{host}/.*/(calendar|events)/\\d{{4}}/\\d{{2}}",
    "^https?://[^/]*\\.{host}/{word}/[0-9]+/(edit|delete|history)$",
    "/{word}/.*/{word}/.*/{word}/",
    "[?&]{word}=[a-f0-9]{{8,32}}(&|$)",
    "^https?://{host}/(?:{word}|{other})/[^/]+/(?:feed|print|share)/?$",
    "(?i)/{word}-\\d+\\.(jpe?g|png|gif|webp)$",
]


def main():
    count = int(sys.argv[1])
    rng = random.Random(count)

    def word():
        return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 5)))

    def host():
        return f"{word()}{rng.randrange(1000)}.{rng.choice(['com', 'org', 'net', 'example'])}"

    def condition():
        kind = rng.random()
        if kind < 0.60:
            return f"domain: {host()}"
        if kind < 0.85:
            return f"url_prefix: 'http://{host()}/{word()}/{word()}/'"
        if kind < 0.95:
            return f"url: {{ contains: '/{word()}/{word()}' }}"
        text = rng.choice(EXPRESSIONS).format(host=host().replace(".", "\\."), word=word(), other=word())
        return f"url: {{ regex: '{text}' }}"

    out = sys.stdout
    out.write("policy: 1\nname: mixed\noptions: { disposition: allow }\nrules:\n")
    for number in range(count):
        out.write(f"  - {{ id: r{number}, forbid: {{ {condition()} }} }}\n")


if __name__ == "__main__":
    main()
