#!/usr/bin/env python3
"""Checks the site that `make docs` made: site.py BOOK, the directory with its index.html.

Each link within it leads to a file. With --width 1300, a browser (chromium in PATH) shows each page in a window of so many pixels, and each block of code must be
seen whole there, without scrolling.
"""

import argparse
import functools
import html
import http.server
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import urllib.parse

LINK = re.compile(r'(?:href|src)="([^"]*)"')
BROWSER_LIMIT_S = 300
# Shows one page after the other, and says what of it is wider than its place. The page's own scripts (the list of pages, the colours of code) have run by then.
MEASURING = """<!doctype html><iframe id="shown" style="border: 0; width: %(width)dpx; height: 900px"></iframe><script>
(async () => {
    const shown = document.getElementById("shown"), found = {blocks: 0, wide: []};
    for (const page of %(pages)s) {
        await new Promise(done => { shown.onload = done; shown.src = page; });
        await shown.contentDocument.fonts.ready;
        await new Promise(done => setTimeout(done, 50));
        for (const code of shown.contentDocument.querySelectorAll("pre > code")) {
            found.blocks += 1;
            if (code.scrollWidth > code.clientWidth || code.parentElement.scrollWidth > code.parentElement.clientWidth)
                found.wide.push([page, code.scrollWidth, code.clientWidth, code.textContent.trim().slice(0, 60)]);
        }
    }
    await fetch("found", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("book", type=pathlib.Path)
    parser.add_argument("--width", type=int, metavar="PIXELS", help="measure blocks of code, too")
    options = parser.parse_args()
    # print.html is all pages in one.
    pages = sorted(page for page in options.book.rglob("*.html") if page.name not in ("404.html", "print.html", "toc.html"))
    wrong = [f"{page.relative_to(options.book)}: {target} leads nowhere" for page in pages for target in broken(options.book, page)]
    if options.width:
        found = measured(options.book, [page.relative_to(options.book).as_posix() for page in pages], options.width)
        print(f"{found['blocks']} blocks of code on {len(pages)} pages in {options.width} pixels: {len(found['wide'])} are not seen whole")
        wrong += [f"{page}: a block of {wide} pixels where {width} are shown: {begin}" for page, wide, width, begin in found["wide"]]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


def broken(book: pathlib.Path, page: pathlib.Path):
    """The targets within the site that are not there."""
    for target in dict.fromkeys(LINK.findall(page.read_text())):
        path = urllib.parse.unquote(html.unescape(target).partition("#")[0])
        if path and not re.match(r"[a-z]+:|//", path) and not (page.parent / path).resolve().exists():
            yield target


class SiteServer(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and beside it the page that measures it, which answers with what it found."""

    def __init__(self, *words, measuring: bytes, found: list, ended: threading.Event, **options) -> None:
        self.measuring, self.found, self.ended = measuring, found, ended
        super().__init__(*words, **options)

    def log_message(self, *_words: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path != "/measuring":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.measuring)

    def do_POST(self) -> None:
        self.found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()
        self.ended.set()


def measured(book: pathlib.Path, pages: list[str], width: int) -> dict:
    """How many blocks of code the pages have, and which are wider than what is shown of them."""
    found: list[dict] = []
    ended = threading.Event()
    measuring = MEASURING % {"width": width, "pages": json.dumps(pages)}
    handler = functools.partial(SiteServer, directory=str(book), measuring=measuring.encode(), found=found, ended=ended)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, tempfile.TemporaryDirectory() as home:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={home}", f"--window-size={width + 40},1000", "--remote-debugging-port=0"]
        address = f"http://127.0.0.1:{server.server_port}/measuring"
        try:
            browser = subprocess.Popen(["chromium", *words, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            sys.exit("site.py: chromium is not in PATH, which shows the pages: apt-get install chromium")
        try:
            ended.wait(BROWSER_LIMIT_S)
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
    if not found:
        sys.exit(f"site.py: chromium has not shown all pages in {BROWSER_LIMIT_S} s: try it by hand with {' '.join(words)}")
    if found[0]["blocks"] == 0:
        sys.exit(f"site.py: no block of code was found in {book}")
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
