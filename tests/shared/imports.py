"""Which files of this tree the Python code of a test can run, found without running it.

What a file imports, also inside its functions, and what its texts name: a module ("kvdrive.nvme", "kvdrive.nvme:name"),
a file ("literal.py", beside it or from the root), the lines of a program, `-m kvdrive`; in tests a package's name
alone, as it is the name of its command. Rather too many than too few. Imports for types alone are never run; in a
package's `__init__` they are names that it finds on first use, and count where a name is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

PLACES = ("sim", "scripts", "host", "tests/shared", "tests/drive", "tests/host", "tests/llama_cpp")  # of sys.path
_MODULE = re.compile(r"(?P<module>[a-z_]\w*(?:\.\w+)*(?:\.\w+|\.))(?::\w+)?")
_FROM = re.compile(r"(?:^|;)\s*from\s+([\w.]+)\s+import\b(?=([\w,\s(]*))", re.MULTILINE)  # and more words than names
_IMPORT = re.compile(r"(?:^|;)\s*import\s+([\w., ]+)", re.MULTILINE)
_RUN = re.compile(r"(?:^|\s)-m\s+([\w.]+)")


def closure(files: Iterable[Path], root: Path) -> set[Path]:
    """These files with all that they can run below `root`, and the `conftest.py` of their folders."""
    tree = _tree(root)
    seen = {*files}
    seen |= {found for file in seen for folder in file.parents if (found := folder / "conftest.py").exists()}
    pending = [file for file in seen if file.suffix == ".py"]
    while pending:
        for found in tree.imports(pending.pop()):
            if found not in seen:
                seen.add(found)
                pending.append(found)
    return seen


class _Tree:
    """Modules by name. Each file is read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.places = [place for name in PLACES if (place := root / name).exists()]
        self.packages = {found.stem for place in self.places for found in place.iterdir() if _is_module(found)}
        self.code = cache(lambda file: ast.parse(file.read_bytes()))
        self.files_of = cache(lambda module: tuple(self._files_of(module)))
        self.doors = cache(self._doors)
        self.imports = cache(lambda file: frozenset(self._imports(file)))

    def _imports(self, file: Path) -> Iterator[Path]:
        """The files that a file can import."""
        doors = set(self.doors(file).values())
        for node in _run(self.code(file)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._whole(alias.name)
            elif isinstance(node, ast.ImportFrom):
                base = _base(file, node.level, self.places) if node.level else ""
                module = ".".join(part for part in (base, node.module) if part)
                yield from self._names(module, [alias.name for alias in node.names])
            elif isinstance(node, (ast.List, ast.Tuple, ast.Call)):
                yield from self._command(node.args if isinstance(node, ast.Call) else node.elts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in doors:
                yield from self._text(node.value, file)

    def _names(self, module: str, names: Iterable[str]) -> Iterator[Path]:
        """Of `from module import names`."""
        files = self.files_of(module)
        yield from files
        for name in names:
            found = self.doors(files[-1]).get(name) if files else None
            yield from self.files_of(found or f"{module}.{name}")

    def _whole(self, module: str) -> Iterator[Path]:
        """Of `import module`: any of its names can be used."""
        files = self.files_of(module)
        yield from files
        for found in self.doors(files[-1]).values() if files else ():
            yield from self.files_of(found)

    def _command(self, words: Sequence[ast.expr]) -> Iterator[Path]:
        """Of a list of words as `["python", "-m", "kvdrive"]`."""
        said = [word.value if isinstance(word, ast.Constant) else None for word in words]
        for option, module in pairwise(said):
            if option == "-m" and isinstance(module, str):
                yield from self._started(module)

    def _started(self, module: str) -> Iterator[Path]:
        yield from self._whole(module)
        yield from self.files_of(f"{module}.__main__")

    def _text(self, text: str, file: Path) -> Iterator[Path]:
        if text in self.packages and file.is_relative_to(self.root / "tests"):
            yield from self._started(text)
        elif text.endswith(".py"):
            paths = ((place / text).resolve() for place in (file.parent, self.root))
            yield from (path for path in paths if path.is_file() and path.is_relative_to(self.root))
        elif found := _MODULE.fullmatch(text):
            files = self.files_of(found["module"].rstrip("."))
            yield from files
            if text.endswith(".") and files and files[-1].name == "__init__.py":  # the rest is known when it runs
                yield from files[-1].parent.rglob("*.py")
        elif " " in text:
            for module, names in _FROM.findall(text):
                yield from self._names(module, re.findall(r"\w+", names))
            for modules in _IMPORT.findall(text):
                for module in modules.split(","):
                    yield from self._whole(module.split(" as ")[0].strip())
            for module in _RUN.findall(text):
                yield from self._started(module)

    def _files_of(self, module: str) -> Iterator[Path]:
        """Of a.b.c: a/__init__.py, a/b/__init__.py, and a/b/c.py or a/b/c/__init__.py; those that exist."""
        parts = module.split(".")
        if parts[0] not in self.packages:
            return
        for place in self.places:
            for depth in range(1, len(parts) + 1):
                path = place.joinpath(*parts[:depth])
                yield from (found for found in (path / "__init__.py", path.with_suffix(".py")) if found.exists())

    def _doors(self, file: Path) -> dict[str, str]:
        """The names that a package finds on first use, and their modules."""
        if file.name != "__init__.py":
            return {}
        found = {}
        for block in ast.walk(self.code(file)):
            for node in block.body if _for_types(block) else ():
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found |= {alias.asname or alias.name: node.module for alias in node.names}
        return found


_tree = cache(_Tree)


def _is_module(path: Path) -> bool:
    return path.suffix == ".py" or (path.is_dir() and path.name.isidentifier() and any(path.rglob("*.py")))


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _run(code: ast.Module) -> Iterator[ast.AST]:
    """All nodes but docstrings and what is below `if TYPE_CHECKING:`."""
    pending: list[ast.AST] = [code]
    while pending:
        node = pending.pop()
        yield node
        for inner in ast.iter_child_nodes(node):
            if not (isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant)):
                pending += inner.orelse if _for_types(inner) else [inner]


def _base(file: Path, level: int, places: Iterable[Path]) -> str:
    """The name of the package that is `level` dots above a module."""
    package = file.parents[level - 1]
    place = next(place for place in places if package.is_relative_to(place))
    return ".".join(package.relative_to(place).parts)
