"""What `make lint` asks of the files of host/kvdrive: no circles, few imports of each other, few parameters, and that
the product needs nothing of the study of papers. And of those of sim/openhls: no circles, and no import of a later
stage of the compiler by an earlier one.

    python scripts/structure.py          # exit code 1 if something is beyond a bound, or an exception is needed no more
    python scripts/structure.py --write  # writes the exceptions as they are now into scripts/structure.toml

Exceptions are in scripts/structure.toml. They only shrink: a test holds their number. The stages of the compiler are
there, too, and have no exceptions.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXCEPTIONS = ROOT / "scripts/structure.toml"
COMMANDS = "kvdrive.cli.main"  # imports all of them, a line each
STUDY = "study"  # the papers; the product goes without
MOST_IMPORTS = 15  # of own modules, in one file
MOST_PARAMETERS = 8  # of one function, outside cli/
STAGES = "stages"  # the table of the compiler's stages
_HEADER = """# Files of host/kvdrive that are beyond a bound of scripts/structure.py. Take entries out, add none.
# circles: files that import each other; imports: own modules of a file; parameters: of a function.
"""
_STAGES_HEADER = "# The stages of sim/openhls"


@dataclass
class Found:
    """What is beyond a bound: files that import each other, and numbers by file and by function.

    `study`: files of the product that import the study; there are no exceptions.
    """

    circles: list[list[str]] = field(default_factory=list)
    imports: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, int] = field(default_factory=dict)
    study: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Stage:
    """Files and folders of a package, and the stages that they may import, beside their own."""

    files: list[str]
    imports: list[str]


def examine(host: Path) -> Found:
    """What is beyond a bound in the package `host`, a folder."""
    nodes = _read(host)
    del nodes[host.name]  # it imports its exports when they are used
    graph = _graph(nodes)
    study = f"{host.name}.{STUDY}"
    found = Found(circles=circles(graph))
    for name, those in nodes.items():
        if (imports := len(graph[name])) > MOST_IMPORTS and name != COMMANDS:
            found.imports[name] = imports
        if not _within(name, study) and name != COMMANDS and any(_within(other, study) for other in graph[name]):
            found.study.append(name)
        if ".cli." not in name:
            found.parameters |= {f"{name}:{what}": n for what, n in _functions(those) if n > MOST_PARAMETERS}
    return found


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other, sorted."""
    reached = {node: _reach(graph, node) for node in graph}
    groups = {tuple(sorted(other for other in reached[node] if node in reached[other])) for node in graph}
    return sorted(list(group) for group in groups if len(group) > 1)


def complaints(found: Found, allowed: Found) -> Iterator[str]:
    """A sentence for each thing beyond its bound and its exception, and for each exception that is too large."""
    for circle in found.circles:
        if circle not in allowed.circles:
            larger = [one for one in allowed.circles if set(circle) < set(one)]
            yield f"{', '.join(circle)} import each other: " + (
                "the circle is smaller now, write it down" if larger else "move what they share into a file below them"
            )
    for circle in allowed.circles:
        if circle not in found.circles and not any(set(one) < set(circle) for one in found.circles):
            yield f"{', '.join(circle)} do not import each other any more: take them out of the exceptions"
    for name in found.study:
        yield f"{name} imports the study of papers: move what both need out of {STUDY}/"
    for kind, most, change in (
        ("imports", MOST_IMPORTS, "give a part of its work to a file of its own"),
        ("parameters", MOST_PARAMETERS, "group those that belong together in a dataclass"),
    ):
        now, before = getattr(found, kind), getattr(allowed, kind)
        for name, number in now.items():
            if number > before.get(name, most):
                yield f"{name} has {number} {kind}, and {before.get(name, most)} are allowed: {change}"
        for name, number in before.items():
            if now.get(name, most) < number:
                yield f"{name} has fewer than {number} {kind} now: write that down among the exceptions"


def misplaced(package: Path, stages: Mapping[str, Stage]) -> Iterator[str]:
    """A sentence for each circle of files in `package`, a folder, for each file in no stage or in several, and for each
    import of a stage that the table of `stages` does not allow."""
    graph = _graph(_read(package))
    for circle in circles(graph):
        yield f"{', '.join(circle)} import each other: move what they share into a file below them"
    stage_of = {}
    for name in graph:
        path = name.removeprefix(package.name).removeprefix(".") or "__init__"
        found = [stage for stage, each in stages.items() if {path, path.split(".")[0]} & set(each.files)]
        if len(found) != 1:
            yield f"{name} is in {len(found)} stages: name it, or its folder, in one of them in {EXCEPTIONS.name}"
        stage_of[name] = found[0] if found else ""
    for name, imports in sorted(graph.items()):
        stage = stages.get(stage_of[name])
        for other in sorted(imports):
            if stage and stage_of[other] != stage_of[name] and stage_of[other] not in stage.imports:
                yield (
                    f"{name} imports {other}, and the stage {stage_of[name]} may not know {stage_of[other]}: "
                    "move what both need to an earlier stage, or let the later one pass it in"
                )


def exceptions() -> Found:
    """Those of scripts/structure.toml."""
    table = tomllib.loads(EXCEPTIONS.read_text())
    return Found(**{kind: table[kind] for kind in table if kind != STAGES})


def compiler_stages() -> dict[str, Stage]:
    """The stages of sim/openhls."""
    return {name: Stage(**each) for name, each in tomllib.loads(EXCEPTIONS.read_text())[STAGES].items()}


def as_toml(found: Found) -> str:
    """The exceptions as they are written."""
    lists = "".join(f"    [{', '.join(map(_quoted, circle))}],\n" for circle in found.circles)
    text = f"{_HEADER}circles = [\n{lists}]\n"
    for kind in ("imports", "parameters"):
        rows = "".join(f"{_quoted(name)} = {number}\n" for name, number in sorted(getattr(found, kind).items()))
        text += f"\n[{kind}]\n{rows}"
    return text


def main() -> int:
    """Print what is wrong. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the exceptions as they are now")
    found = examine(ROOT / "host/kvdrive")
    if parser.parse_args().write:
        stages = EXCEPTIONS.read_text().partition(_STAGES_HEADER)
        EXCEPTIONS.write_text(f"{as_toml(found)}\n{stages[1]}{stages[2]}")
        return 0
    beyond = list(complaints(found, exceptions()))
    wrong = [*beyond, *misplaced(ROOT / "sim/openhls", compiler_stages())]
    for line in wrong:
        print(line)
    if beyond:
        print(f"{EXCEPTIONS.name} has the exceptions; scripts/structure.py --write makes them as they are now.")
    return 1 if wrong else 0


def _read(package: Path) -> dict[str, list[ast.AST]]:
    """The parts of each file of a package, by the name of its module."""
    paths = sorted(package.rglob("*.py"))
    return {_name(path, package): list(ast.walk(ast.parse(path.read_text()))) for path in paths}


def _graph(nodes: Mapping[str, list[ast.AST]]) -> dict[str, set[str]]:
    """The own modules that each module imports."""
    return {name: set(_imported(those, nodes)) - {name} for name, those in nodes.items()}


def _name(path: Path, host: Path) -> str:
    parts = path.relative_to(host.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _within(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")


def _quoted(text: str) -> str:
    return f'"{text}"'


def _imported(nodes: Iterable[ast.AST], known: Mapping[str, object]) -> Iterator[str]:
    """The own modules that a module imports: when it is imported, in its functions, or for type checkers alone."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in names if known.keys() & {name, node.module})


def _functions(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    """Functions and methods with their numbers of parameters, without self and cls."""
    classes = {part: f"{one.name}." for one in nodes if isinstance(one, ast.ClassDef) for part in one.body}
    for one in nodes:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [arg.arg for arg in (*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs)]
            yield f"{classes.get(one, '')}{one.name}", len(names) - (names[:1] in (["self"], ["cls"]))


def _reach(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """The nodes that can be reached from one, by one step at least, and itself."""
    seen, waiting = {start}, [start]
    while waiting:
        for node in graph[waiting.pop()] - seen:
            seen.add(node)
            waiting.append(node)
    return seen


if __name__ == "__main__":
    sys.exit(main())
