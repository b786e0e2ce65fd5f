"""Python's requests: requests the URLs of standard input, eight at once, and writes each response as a JSON line.

Redirects are not followed, and a URL that requests would write in another way is left out.
"""

import base64
import concurrent.futures
import json
import os
import sys

import requests

PROXY = sys.argv[1]


def ask(session: requests.Session, url: str) -> dict:
    try:
        with session.get(url, allow_redirects=False, stream=True, timeout=60) as response:
            headers: dict[str, list[str]] = {}
            for name, value in response.raw.headers.iteritems():
                headers.setdefault(name.lower(), []).append(value)
            # Of a redirect requests has read the body already, to keep the connection.
            body = response.content if response.is_redirect else response.raw.read(decode_content=False)
            return {"url": url, "status": response.status_code, "headers": headers, "body": body, "error": ""}
    except (requests.RequestException, OSError) as error:
        return {"url": url, "status": 0, "headers": {}, "body": b"", "error": repr(error)}


def main() -> None:
    urls = [line.rstrip("\n") for line in sys.stdin]
    asked = [url for url in urls if requests.Request("GET", url).prepare().url == url]
    session = requests.Session()
    # Settings of the machine that runs this would mix into the test.
    session.trust_env = False
    session.proxies = {"http": PROXY, "https": PROXY}
    session.verify = os.environ.get("REQUESTS_CA_BUNDLE", True)
    session.headers = {"User-Agent": requests.utils.default_user_agent(), "Accept": "*/*"}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for answer in pool.map(lambda url: ask(session, url), asked):
            print(json.dumps(answer | {"body": base64.b64encode(answer["body"]).decode()}))


main()
