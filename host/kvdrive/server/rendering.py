"""Markdown of a model as HTML that a page may show: nothing in it runs, and nothing is loaded for it.

markdown-it-py makes the HTML and escapes all tags of the text, Pygments colours code, and nh3 leaves only the tags and
attributes of the lists here. An image becomes a link: a page that showed it would tell its server who reads.

As a program it answers each line, a text as JSON, by a line with its HTML (see `renderer`).
"""

from __future__ import annotations

import html
import json
import logging
import re
import sys

import nh3
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

log = logging.getLogger(__name__)

LANGUAGES = {
    "bash", "c", "cpp", "csharp", "css", "cuda", "diff", "docker", "go", "html", "ini", "java", "javascript", "json",
    "kotlin", "lua", "make", "nasm", "php", "python", "r", "ruby", "rust", "scala", "sql", "swift", "systemverilog",
    "text", "toml", "typescript", "verilog", "vhdl", "xml", "yaml",
}  # fmt: skip
_MOST_CODE = 32 << 10  # characters of a block of code that are coloured
_LINK = re.compile(r"(https?://|mailto:)[^\s]", re.IGNORECASE)
_FIRST_HEADING = 3  # the page has two levels of its own
_BLOCKS = "p br hr h3 h4 h5 h6 ul ol li blockquote pre table thead tbody tr th td details summary div"
_TAGS = {*_BLOCKS.split(), "a", "code", "em", "strong", "s", "span"}
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
_CLASSES = {
    "code": {f"language-{name}" for name in LANGUAGES},
    "span": {name for name in STANDARD_TYPES.values() if name},
}


def rendered(text: str) -> str:
    """The HTML of a text. What a model thinks before it answers, in <think>, is folded."""
    try:
        return nh3.clean(
            _with_thoughts(text),
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            attribute_filter=_checked,
            allowed_classes=_CLASSES,
            set_tag_attribute_values={"a": {"target": "_blank"}},
            url_schemes={"http", "https", "mailto"},
            link_rel="noopener noreferrer nofollow",
        )
    except Exception:  # whatever a text does to the packages, a person can read it
        log.exception("a text is shown as it is")
        return f"<pre>{html.escape(text)}</pre>"


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        """Only whole addresses: a relative one would be a path of this server."""
        return _LINK.match(url) is not None


def _highlighted(code: str, name: str, attributes: str) -> str:
    """The HTML of a block of code; it is coloured if it is short and the language `name` is on the list."""
    try:
        lexer = get_lexer_by_name(name) if name and len(code) <= _MOST_CODE else None
    except ClassNotFound:
        lexer = None
    known = next((one for one in (name, *lexer.aliases) if one in LANGUAGES), None) if lexer else None
    if known is None:
        return f"<pre><code>{html.escape(code)}</code></pre>"
    return f'<pre><code class="language-{known}">{highlight(code, lexer, _FORMATTER)}</code></pre>'


_FORMATTER = HtmlFormatter(nowrap=True)
_MARKDOWN = _Markdown("js-default", {"highlight": _highlighted, "breaks": True}).disable("image")


def _as_html(text: str) -> str:
    tokens = _MARKDOWN.parse(text)
    for one in tokens:
        if one.type in ("heading_open", "heading_close"):
            one.tag = f"h{min(int(one.tag[1]) + _FIRST_HEADING - 1, 6)}"
    return str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))


def _with_thoughts(text: str) -> str:
    thoughts, ended, said = text.partition("</think>")
    begun = thoughts.lstrip().startswith("<think>")
    if not begun and not ended:
        return _as_html(text)
    thoughts = thoughts.lstrip().removeprefix("<think>")
    folded = f"<details><summary>Thoughts</summary>{_as_html(thoughts)}</details>" if thoughts.strip() else ""
    return folded + _as_html(said)


def _checked(tag: str, name: str, value: str) -> str | None:
    """The value of an attribute; None removes it."""
    return None if name == "href" and not _LINK.match(value) else value


def main() -> None:
    """Render what comes, until there is no more. The first line says that it has begun."""
    print(flush=True)
    for line in sys.stdin:
        print(json.dumps(rendered(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
