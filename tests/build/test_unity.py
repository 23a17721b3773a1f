"""Sources that are compiled together (CMakeLists.txt, UNITY_BUILD) do not see each other's own names by accident.

Two functions of one name in two sources would be overloads of each other in one unit: a call could reach the other
source's function without any message.
"""

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRIVE = ROOT / "sim/drive"
ALONE = {DRIVE / name for name in ("engine", "engine/fast", "engine/hls/calls", "fuzz", "board")}
FOLDERS = sorted({path.parent for path in DRIVE.rglob("*.cpp")} - ALONE)
OWN = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
DECLARED = (
    re.compile(r"(?:class|struct|enum(?: class)?) (\w+)"),
    re.compile(r"using (\w+)\s*="),
    re.compile(r"(?:constexpr|const)\b.*?\b(k[A-Z]\w*)"),
    re.compile(r"^[\w:<>&*,\s\[\]]*?\b(\w+)\("),
)


def own_names(text: str) -> set[str]:
    """What a source declares for itself, in namespaces without a name."""
    found: set[str] = set()
    for body in OWN.findall(text):
        depth = 0
        for line in body.splitlines():
            code = line.split("//")[0]
            if depth == 0 and not code.startswith("#"):
                for pattern in DECLARED:
                    if names := pattern.findall(code):
                        found.update(names)
                        break
                found.update(re.findall(r", (k[A-Z]\w*)(?= =|\[)", code))
            depth += code.count("{") - code.count("}")
    return found - {"static_assert", "if", "for", "while", "switch"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sources_of_a_folder_have_names_of_their_own(folder: Path) -> None:
    users = defaultdict(list)
    for source in sorted(folder.glob("*.cpp")):
        for name in own_names(source.read_text()):
            users[name].append(source.name)
    assert {name: files for name, files in users.items() if len(files) > 1} == {}


def test_names_are_found() -> None:
    text = "namespace {\n\nconstexpr int kA = 1, kB = 2;\nReply read(int x) {\n  call();\n}\nusing C = int;\n\n}"
    assert own_names(text + "  // namespace\n") == {"kA", "kB", "read", "C"}
