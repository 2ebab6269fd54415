"""Tests for the runbooks as HTML pages."""

import hashlib
import http.client
import re
import threading
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.http.endpoints import Endpoints
from trainvitals.http.listen import Address
from trainvitals.http.messages import GUARDS, POLICY, Request
from trainvitals.http.runbooks import Handbook, _write_blocks
from trainvitals.http.server import Server
from trainvitals.metrics.runner import Runner

ROOT = Path(__file__).parents[3]
PAGE = """\
# HostHot

The <host> is `hot`.

## Meaning

Somebody said: **water & salt**, see [the other](HostCold.md), [a site](https://example.org/?a=1&b=2)
and [a document](../training.md).

- one `a < b`
- two
  goes on

1. first
2. second

| a | b |
| --- | --- |

```console
$ nvidia-smi | grep '<N/A>'

$ # no heading
```

## Silence it

<script>alert(1)</script>
"""


class Reader(HTMLParser):
    """A parser that records the tags of a page and checks that each is closed."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.tags = []

    def handle_starttag(self, tag, attrs):
        """Record an opening tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "!doctype"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        """Check that a closing tag belongs to the last open tag."""
        assert self.open.pop() == tag


@pytest.fixture
def directory(tmp_path):
    """Return a directory of two runbooks, with other files in and above it."""
    (tmp_path / "runbooks").mkdir()
    (tmp_path / "runbooks/HostHot.md").write_text(PAGE, encoding="utf-8")
    (tmp_path / "runbooks/HostCold.md").write_text("# HostCold\n\nBrr.\n", encoding="utf-8")
    (tmp_path / "runbooks/notes.txt").write_text("secret", encoding="utf-8")
    (tmp_path / "Secret.md").write_text("secret", encoding="utf-8")
    return tmp_path / "runbooks"


@pytest.fixture
def get(directory):
    """Yield a function that requests a path and returns the response."""
    runner = Runner(())
    endpoints = Endpoints(SimpleNamespace(runner=runner, expected={}), Handbook(directory))

    def ask(path):
        box = SimpleQueue()
        endpoints.answer(Request("GET", path, (), {}), box.put)
        return box.get(timeout=30)

    yield ask
    runner.close()


def read(page):
    """Return the tags of a page after checking that all are closed."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader.tags


def test_the_list_links_to_every_runbook(get):
    """The list links to every runbook and shows the first line of each."""
    response = get("/runbooks/")
    page = response.body.decode()
    assert response.status == 200
    assert dict(response.headers)["Content-Type"] == "text/html; charset=utf-8"
    assert '<li><a href="/runbooks/HostCold">HostCold</a> Brr.\n</li>' in page
    assert '<li><a href="/runbooks/HostHot">HostHot</a> The &lt;host&gt; is hot.</li>' in page
    assert len([tag for tag, _ in read(page) if tag == "a"]) == 2


def test_a_runbook_is_a_page(get):
    """The Markdown of a runbook is converted to HTML, and all text is escaped."""
    page = get("/runbooks/HostHot").body.decode()
    assert "<title>HostHot</title>" in page
    body = page.partition("<body>\n")[2].partition("\n</body>")[0]
    assert body == (
        "<h1>HostHot</h1>\n"
        "<p>The &lt;host&gt; is <code>hot</code>.</p>\n"
        "<h2>Meaning</h2>\n"
        "<p>Somebody said: <strong>water &amp; salt</strong>, "
        'see <a href="/runbooks/HostCold">the other</a>, '
        '<a href="https://example.org/?a=1&amp;b=2">a site</a>\nand a document.</p>\n'
        "<ul>\n<li>one <code>a &lt; b</code></li>\n<li>two\n  goes on</li>\n</ul>\n"
        "<ol>\n<li>first</li>\n<li>second</li>\n</ol>\n"
        "<pre>| a | b |\n| --- | --- |</pre>\n"
        "<pre>$ nvidia-smi | grep &#x27;&lt;N/A&gt;&#x27;\n\n$ # no heading</pre>\n"
        "<h2>Silence it</h2>\n"
        "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>\n"
        '<footer><a href="/runbooks/">all runbooks</a></footer>'
    )
    read(page)


@pytest.mark.parametrize(
    "name",
    [
        "Nothing",
        "HostHot.md",
        "HostHot/",
        "hosthot",
        "../Secret",
        "../runbooks/HostHot",
        "notes",
        "notes.txt",
        ".",
        "..",
        "/etc/passwd",
        "HostHot\0",
        "*",
        "<script>",
        "x" * 5000,
    ],
)
def test_any_other_name_is_not_found(get, name):
    """Any other name returns 404 with the list of runbooks, and no other file is read."""
    response = get(f"/runbooks/{name}")
    page = response.body.decode()
    assert response.status == 404
    assert '<a href="/runbooks/HostHot">' in page
    assert "secret" not in page
    assert "<script>" not in page


@pytest.mark.parametrize("path", ["", "HostHot", "Nothing", "%2e%2e/Secret"])
def test_a_runbook_has_the_headers_of_the_page(get, path):
    """The policy of a runbook page allows only the style of the page and no script."""
    response = get(f"/runbooks/{path}")
    headers = dict(response.headers)
    assert headers.keys() >= dict(GUARDS).keys()
    style = response.body.decode().partition("<style>")[2].partition("</style>")[0]
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = headers["Content-Security-Policy"]
    assert policy.replace(f" 'sha256-{digest}'", "") == POLICY


def test_head_is_told_the_length_alone(directory):
    """HEAD returns the headers of GET without a body, and an escaped path to a parent a 404."""
    machine = SimpleNamespace(runner=Runner(()), expected={})
    endpoints = Endpoints(machine, Handbook(directory))
    server = Server([Address("127.0.0.1", 0)], endpoints.answer)
    server.bind()
    thread = threading.Thread(target=server.run)
    thread.start()
    client = http.client.HTTPConnection("127.0.0.1", server.bound[0].port, timeout=30)
    try:
        answers = {}
        for method, path in (
            ("GET", "/runbooks/HostHot"),
            ("HEAD", "/runbooks/HostHot"),
            ("HEAD", "/runbooks/Nothing"),
            ("GET", "/runbooks/%2e%2e%2fSecret"),
        ):
            client.request(method, path)
            response = client.getresponse()
            length = int(response.getheader("Content-Length"))
            answers[method, path] = (response.status, length, response.read())
    finally:
        client.close()
        server.stop()
        thread.join(30)
        machine.runner.close()
    status, length, body = answers["GET", "/runbooks/HostHot"]
    assert (status, length) == (200, len(body))
    assert answers["HEAD", "/runbooks/HostHot"] == (200, length, b"")
    assert answers["HEAD", "/runbooks/Nothing"][0] == 404
    status, _, body = answers["GET", "/runbooks/%2e%2e%2fSecret"]
    assert status == 404
    assert b"secret" not in body


def test_other_paths_have_no_runbooks(get):
    """Paths outside `/runbooks/` return 404."""
    assert get("/runbooks").status == 404
    assert get("/runbooksHostHot").status == 404
    assert b"no such path; there are /, " in get("/runbooks").body


def test_without_runbooks_the_list_is_empty(tmp_path):
    """Without a directory of runbooks, the list is empty and no page exists."""
    handbook = Handbook(tmp_path / "nowhere")
    assert b"<li>" not in handbook.write_list()
    assert handbook.write_runbook("HostHot") is None


def test_every_runbook_of_the_product_is_a_page():
    """Every runbook of the project becomes a page without any remaining Markdown syntax."""
    handbook = Handbook()
    names = [path.stem for path in (ROOT / "docs/runbooks").glob("*.md")]
    assert len(names) > 50
    for name in names:
        page = handbook.write_runbook(name)
        assert page is not None
        tags = read(page.decode())
        assert [tag for tag, _ in tags].count("h2") == 4
        text = re.sub(r"<(pre|code)>.*?</\1>", "", page.decode(), flags=re.DOTALL)
        assert re.findall(r"^(?:#|- |\d+\. |```).*|\*\*|`|\]\(", text.partition("<body>")[2]) == []
        for _, attributes in tags:
            if attributes.get("href", "").startswith("/runbooks/"):
                assert (
                    handbook.write_runbook(attributes["href"][10:]) or attributes["href"][10:] == ""
                )


@given(st.text(alphabet=st.sampled_from("#`*[]()|-1. \nab<&\"'"), max_size=200))
def test_no_text_breaks_a_page(text):
    """Any text results in a page whose tags are closed and known."""
    tags = read("\n".join(_write_blocks(text)))
    known = {"h1", "h2", "h3", "p", "pre", "code", "strong", "ul", "ol", "li", "a"}
    assert {tag for tag, _ in tags} <= known


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=200))
def test_every_word_of_a_text_is_shown(text):
    """All words of a text without Markdown are shown."""
    text = re.sub(r"[^\w\n ]", "", text).replace("\r", "")
    words = re.sub(r"<[^>]+>", " ", "\n".join(_write_blocks(text))).split()
    assert words == text.split()
