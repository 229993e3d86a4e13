"""Find the most requested pages and the number of failures in a web server's log.

What it shows: two results from one stream in one pass, `filter_map` to parse and drop in
one step, and a top-k in which only k rows of every task travel.

    millstream run examples/log_top_k.py --on local -- 3
"""

from __future__ import annotations

import random
import re
import sys
from typing import NamedTuple

import millstream as ms

LINES = 10_000
SERVER_ERROR = 500
PAGES = ("/", "/docs", "/docs/install", "/about", "/blog/1", "/blog/2", "/search")
LINE = re.compile(r'\S+ "GET (?P<url>\S+) HTTP/1\.1" (?P<status>\d{3})')


class Request(NamedTuple):
    """What one line of the log says."""

    url: str
    status: int


def log_line(number: int) -> str:
    """Make up a line; a few cannot be parsed, as in any log."""
    draw = random.Random(number)  # noqa: S311 - no secret
    page = PAGES[min(int(draw.expovariate(0.7)), len(PAGES) - 1)]
    status = draw.choices((200, 404, 500), weights=(90, 8, 2))[0]
    return (
        f'10.0.0.{number % 256} "GET {page} HTTP/1.1" {status}' if number % 97 else "?"
    )


def parse(line: str) -> Request | None:
    """Return the request, or None for a line that is not one."""
    match = LINE.fullmatch(line)
    return Request(match["url"], int(match["status"])) if match else None


k = int(sys.argv[1]) if len(sys.argv) > 1 else 5

flow = ms.Flow("log-top-k")
requests = flow.from_iterable(range(LINES)).map(log_line).filter_map(parse)
pages = requests.group_by(lambda request: request.url).count()
top = pages.sort_by(lambda pair: (-pair[1], pair[0])).limit(k).collect()
failures = requests.filter(lambda r: r.status >= SERVER_ERROR).count()

if __name__ == "__main__":
    flow.run()
    for url, count in top.result():
        print(f"{count:6,}  {url}")
    print(f"{failures.result():6,}  failures")
