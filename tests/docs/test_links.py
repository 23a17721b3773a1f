"""Pages name what is there: links and their anchors, pictures, files of the tree, and pages that the code names."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
PAGES = [name for name in FILES if name.endswith(".md") and (ROOT / name).exists()]
MADE = re.compile(r"build/|out/")  # by commands
ELSEWHERE = {
    "hello_world/src/vadd.cpp": "an example of Vitis_Accel_Examples",
    "behav_waveform/xsim/simulate.sh": "in the folder that the vendor's emulation makes",
    "host/kvdrive/policies/ends.py": "the policy that docs/design/extend.md adds",
}
SOURCE = re.compile(r"\.(?:py|pyi|cpp|hpp|h|sv|sh|toml|md|txt|json|js|css)$")


def prose(text):
    """The lines outside of code blocks, and with the code in backquotes taken out."""
    lines, code = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.startswith("    "):
            lines.append(line)
    return re.sub(r"`[^`\n]*`", "", "\n".join(lines))


def anchors(text):
    """Those of the headings, as GitHub and the site make them."""
    found, code = set(), False
    for line in text.splitlines():
        code ^= line.startswith("```")
        if not code and (heading := re.match(r"#+ (.*)", line)):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1].strip().lower())
            slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            number = 0
            while (name := f"{slug}-{number}" if number else slug) in found:
                number += 1
            found.add(name)
    return found


def broken(page, text):
    """Links of a page whose file or anchor is not there."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists() or (anchor and anchor not in anchors(path.read_text())):
            yield target


def missing(text):
    """Files in backquotes that are not in the tree. They may leave out the folders in front, as `kv/row_fetch.cpp`."""
    for name in re.findall(r"`([\w.-]+(?:/[\w.-]+)+)(?:::\w+)?(?:: \w+)?`", text):
        if not SOURCE.search(name) or MADE.match(name) or name in ELSEWHERE:
            continue
        if not any(f"/{file}".endswith(f"/{name}") for file in FILES):
            yield name


@pytest.mark.parametrize("name", PAGES)
def test_links_and_files_of_a_page_are_there(name):
    text = (ROOT / name).read_text()
    assert list(broken(ROOT / name, text)) == []
    assert name == "CHANGELOG.md" or list(missing(text)) == []  # it names files of older versions


def test_a_dead_link_anchor_or_file_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n\n## Two: x\n\n## One\n")
    text = "[a](page.md) [b](page.md#two-x) [c](page.md#three) [d](other.md) [e](#one-1) [f](https://x.org) `[g](h.md)`"
    assert list(broken(page, text)) == ["page.md#three", "other.md"]
    assert list(missing("`kv/row_filter.cpp` `kv/row_fetch.cpp` `docs/README.md` `build/x.json`")) == [
        "kv/row_filter.cpp"
    ]


def test_pages_that_the_code_names_are_there():
    """Comments may leave out the folder of a page, `docs/NAME.md`: names of pages are unique."""
    pages = [name for name in PAGES if name.startswith("docs/") and name != "docs/README.md"]
    short = {f"docs/{Path(name).name}" for name in pages}
    assert len(short) == len(pages)
    dead = {}
    for name in FILES:
        path = ROOT / name
        if path.suffix in (".py", ".cpp", ".hpp", ".h", ".toml", ".sh", ".js", "") and path.is_file():
            for found in re.findall(r"(?<![\w/])docs/(?:[\w-]+/)*[\w-]+\.md", path.read_text(errors="replace")):
                if found not in short and found not in PAGES:
                    dead.setdefault(name, set()).add(found)
    dead.pop(str(Path(__file__).relative_to(ROOT)), None)
    assert dead == {}
