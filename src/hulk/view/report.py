"""A report: the page and its document in one file that needs nothing else, not even a network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from hulk.errors import HulkError
from hulk.io.page_files import PageFiles
from hulk.view.build import plain_json
from hulk.view.document import Document

STYLE_TAG = '<link rel="stylesheet" href="/page.css">'
DATA_TAG = '<script id="hulk-data" type="application/json"></script>'
SCRIPT_TAG = '<script src="/page.js" defer></script>'
_HEAD = "<head>"
_MOST = 3_000_000  # bytes
_WITHOUT = "The timeline is left out, since it would make this report larger than 3 MB; hulk serve shows it."
# What would end a script element, begin a comment in one, or end a line in old JavaScript.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def json_for_html(value: Any) -> str:
    """JSON that can stand in a script element whatever texts it holds: it reads as the same value, without markup."""
    text = json.dumps(plain_json(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode().translate(_ESCAPES)


def filled(index: str, data: Any) -> str:
    """The page's frame with its data in place."""
    _check(index, DATA_TAG)
    return index.replace(DATA_TAG, DATA_TAG.replace("></", f">{json_for_html(data)}</"), 1)


def report_html(document: Document, page: PageFiles) -> str:
    """The whole report; where it would be too large to be mailed, a leaner one. Its content security policy knows its
    own script and style by their digests, and allows nothing to be loaded from anywhere."""
    for tag in (STYLE_TAG, SCRIPT_TAG, _HEAD):
        _check(page.index, tag)
    if "</script" in page.script.lower() or "<!--" in page.script or "</style" in page.style.lower():
        raise HulkError("the page's own files hold what would end them; build them again")
    policy = (
        f"default-src 'none'; script-src {_digest(page.script)}; style-src {_digest(page.style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    head = f'{_HEAD}\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    frame = page.index.replace(_HEAD, head, 1).replace(STYLE_TAG, f"<style>{page.style}</style>", 1)
    frame = frame.replace(SCRIPT_TAG, f"<script>{page.script}</script>", 1)
    text = ""
    for lean in _leaner(document):
        text = filled(frame, {"mode": "report", "document": lean, "land": json.loads(page.land)})
        if len(text.encode()) < _MOST:
            break
    return text


def _leaner(document: Document) -> Iterator[Document]:
    """The document; without what the page does not draw, the stages of its price, which are in its cut, too; and
    without its timeline."""
    yield document
    jobs = {
        name: {key: value for key, value in job.items() if key != "pipelines"}
        for name, job in document["price"]["jobs"].items()
    }
    price = {**document["price"], "jobs": jobs}
    yield {**document, "price": price}
    if document["timeline"] is not None:
        words = document["words"]
        yield {**document, "price": price, "timeline": None, "words": {**words, "notes": [*words["notes"], _WITHOUT]}}


def _check(index: str, tag: str) -> None:
    if index.count(tag) != 1:
        raise HulkError(f"the page's frame must have {tag} once; build it again")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
