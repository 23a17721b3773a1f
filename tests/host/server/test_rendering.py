"""Markdown becomes HTML in which nothing runs and for which nothing is loaded, whatever the text is."""

from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygments.lexers import get_lexer_by_name

from kvdrive.server.rendering import LANGUAGES, rendered

TAGS = {
    "a", "blockquote", "br", "code", "del", "details", "div", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p",
    "pre", "s", "span", "strong", "summary", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {"a": {"href", "title", "rel", "target"}, "code": {"class"}, "span": {"class"}, "ol": {"start"}}
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe src=//example.org></iframe>",
    "<a href=javascript:alert(1)>x</a>",
    "<p style=position:fixed>x</p>",
    "<details open ontoggle=alert(1)>",
    "<style>@import '//example.org'</style>",
    "<form action=//example.org><input name=key><button>Log in</button></form>",
    "<base href=//example.org><meta http-equiv=refresh content=0>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=x onerror=alert(1)&gt;'>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](&#x1;javascript:alert(1))",
    "[x](vbscript:x)",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](file:///etc/passwd)",
    "[x](//example.org/x)",
    "[x](/v1/sessions)",
    "[x](https://example.org 'a\" onmouseover=\"alert(1)')",
    "<javascript:alert(1)>",
    "![x](https://example.org/seen.png)",
    "![x](data:image/svg+xml;base64,AAAA)",
    "[a]: javascript:alert(1)\n\n[a]",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "```x' onload='alert(1)\nx\n```",
    "`<script>alert(1)</script>`",
    "# <img src=x onerror=alert(1)>",
    "| <b onclick=alert(1)> |\n|---|\n| <script>alert(1)</script> |",
    "<think><script>alert(1)</script></think><img src=x>",
    "</think></details><script>alert(1)</script>",
    "<think>",
    "\0<script>\0alert(1)</script>",
    "<scr\0ipt>alert(1)</script>",
    "<!--><img src=x onerror=alert(1)>-->",
    "<![CDATA[<img src=x onerror=alert(1)>]]>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
]


class Parsed(HTMLParser):
    """Tags, attributes and the text of HTML."""

    def __init__(self, text):
        super().__init__()
        self.found, self.texts = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


def check(text):
    parsed = Parsed(rendered(text))
    for tag, attributes in parsed.found:
        assert tag in TAGS, (text, tag)
        assert attributes.keys() <= ATTRIBUTES.get(tag, set()), (text, tag, attributes)
        if tag == "a":
            assert attributes.get("href", "https://").lower().startswith(("http://", "https://", "mailto:")), text
            assert attributes["rel"] == "noopener noreferrer nofollow"
            assert attributes["target"] == "_blank"
        if "class" in attributes:
            assert attributes["class"].replace("language-", "").isalnum(), (text, attributes)
    return parsed


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_hostile_text_runs_or_is_loaded(text):
    check(text)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(HOSTILE) | st.sampled_from(list("\n`*_[]()<>!#|-\"'&;: \0")) | st.text(max_size=6), max_size=12
    )
)
def test_nothing_in_pieces_of_hostile_texts_runs_or_is_loaded(pieces):
    check("".join(pieces))


def test_tags_in_a_text_are_shown_as_text():
    assert "".join(check("<script>alert(1)</script> <b>x</b>").texts).strip() == "<script>alert(1)</script> <b>x</b>"


def test_code_is_coloured_and_says_its_language():
    found = rendered("```py\ndef f(x):\n    return 'a' + x\n```")
    assert found.startswith('<pre><code class="language-python"><span class="k">def</span>')
    assert "<span class=\"s1\">'a'</span>" in found
    text = "".join(Parsed(found).texts)
    assert text.strip() == "def f(x):\n    return 'a' + x"


@pytest.mark.parametrize("text", ["```unheard\n<x>\n```", "```\n<x>\n```", "    <x>"])
def test_code_of_no_known_language_is_shown_without_colours(text):
    assert rendered(text).strip() == "<pre><code>&lt;x&gt;\n</code></pre>"


def test_a_language_that_is_not_on_the_list_is_not_coloured():
    assert get_lexer_by_name("brainfuck").aliases[0] not in LANGUAGES
    assert "<span" not in rendered("```brainfuck\n+++[>+<-]\n```")


def test_every_language_on_the_list_has_its_name():
    for name in LANGUAGES:
        assert name in get_lexer_by_name(name).aliases
        assert f'class="language-{name}"' in rendered(f"```{name}\nx\n```")


def test_long_code_is_shown_without_colours():
    found = rendered("```python\n" + "x = 1\n" * 6000 + "```")
    assert "<span" not in found
    assert found.count("x = 1") == 6000


def test_an_image_becomes_a_link():
    (_, link) = check("![a view](https://example.org/a.png)").found
    assert link == (
        "a", {"href": "https://example.org/a.png", "rel": "noopener noreferrer nofollow", "target": "_blank"},
    )  # fmt: skip


def test_headings_begin_below_those_of_the_page():
    tags = [tag for tag, _ in check("# a\n## b\n### c\n#### d\n##### e\n###### f").found]
    assert tags == ["h3", "h4", "h5", "h6", "h6", "h6"]


def test_lists_tables_and_lines_are_kept():
    found = rendered("3. a\n4. b\n\none\ntwo ~~three~~\n\n| a | b |\n|---|--:|\n| 1 | 2 |")
    assert '<ol start="3">' in found
    assert "one<br>" in found
    assert "<s>three</s>" in found
    assert "<td>2</td>" in found


@pytest.mark.parametrize(
    "text", ["<think>so *that*</think>It is.", "so *that*</think>It is.", "\n<think>\nso *that*\n</think>\n\nIt is."]
)
def test_thoughts_are_folded(text):
    assert rendered(text).replace("\n", "") == (
        "<details><summary>Thoughts</summary><p>so <em>that</em></p></details><p>It is.</p>"
    )


def test_thoughts_that_have_not_ended_are_folded_too():
    assert rendered("<think>so").replace("\n", "") == "<details><summary>Thoughts</summary><p>so</p></details>"
    assert rendered("<think></think>x").strip() == "<p>x</p>"


def test_a_text_that_the_packages_do_not_take_is_shown_as_it_is():
    assert rendered("\ud800 <b> *x*") == "<pre>\ud800 &lt;b&gt; *x*</pre>"


def test_the_same_text_gives_the_same_html():
    text = "# a\n\n[b][c]\n\n[c]: https://example.org"
    assert rendered(text) == rendered(text)
    assert "<a" not in rendered("[b][c]")  # what one text defines is not in the next one
