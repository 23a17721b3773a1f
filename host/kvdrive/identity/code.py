"""Which code counts by its name, and the rest of it as bytes.

Python, torch and NumPy count by the names of what is used of them, packages that are installed by name and the text of
their files (`text_of`), and everything else - notebooks, scripts, functions that were put into a class or a module of
somebody else - by its compiled code.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import sysconfig
import types
from abc import ABCMeta
from pathlib import Path
from typing import Any

from kvdrive.identity import harmless

_LIBRARIES = frozenset({"torch", "numpy", "builtins", "typing_extensions"}) | sys.stdlib_module_names - {"__main__"}
_INSTALLED = tuple({sysconfig.get_path(kind) + "/" for kind in ("purelib", "platlib", "stdlib", "platstdlib")})
_HEAP, _IMMUTABLE = 1 << 9, 1 << 8  # of a type's flags in CPython: made at run time; not to be changed
_OF_CLASSES = frozenset(
    ("__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__annotations__", "__slots__", "_abc_impl",
     "__abstractmethods__", "__parameters__", "__orig_bases__", "__static_attributes__", "__firstlineno__")
)  # fmt: skip


def name_of(value: Any) -> bytes:
    """Module and name of a class or function."""
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value)}".encode()


def root_of(value: Any) -> str:
    """The package that a class or function says it is from."""
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


def is_library(value: Any) -> bool:
    """True for what Python, torch and NumPy define."""
    return root_of(value) in _LIBRARIES


def is_own(value: Any) -> bool:
    """True for what this package defines."""
    return root_of(value) == __name__.partition(".")[0]


def is_installed(function: types.FunctionType) -> bool:
    """True for a function that its own module has under its name, in a package that is installed."""
    module = sys.modules.get(function.__module__ or "")
    if module is None or not (is_library(function) or is_own(function) or _is_installed_module(module)):
        return False
    found: Any = module
    for name in function.__qualname__.split("."):
        found = inspect.getattr_static(found, name, None)
    found = getattr(found, "__func__", found)
    return found is function


def only_looks(hook: Any) -> bool:
    """True for a forward hook that was written in a module of `harmless.HOOKS`."""
    files = [getattr(sys.modules.get(name), "__file__", None) for name in harmless.HOOKS]
    return isinstance(hook, types.FunctionType) and hook.__code__.co_filename in files


def is_steady(kind: type) -> bool:
    """True for modules whose plain attributes are not changed to and fro, as those of adapters are."""
    return root_of(kind) in ("torch", "transformers")


def is_written_in_python(kind: type) -> bool:
    """True for a class whose objects hold nothing but attributes: none that C or C++ has defined."""
    return bool(kind.__flags__ & _HEAP) and not kind.__flags__ & _IMMUTABLE and type(kind) in (type, ABCMeta)


def is_installed_class(kind: type) -> bool:
    """True for a class of a package that is installed, or of this one."""
    module = sys.modules.get(kind.__module__)
    return is_own(kind) or (module is not None and _is_installed_module(module))


def modules_of(kinds: set[type]) -> list[types.ModuleType]:
    """The installed modules that define these classes, by name, without libraries and this package."""
    installed = (kind for kind in kinds if is_installed_class(kind) and not is_library(kind) and not is_own(kind))
    return [sys.modules[name] for name in sorted({kind.__module__ for kind in installed})]


def foreign(kind: type) -> dict[str, Any]:
    """What of a class's own attributes is not in the text of its installed module; of another class: everything."""
    own = {name: value for name, value in sorted(vars(kind).items()) if name not in _OF_CLASSES}
    if is_own(kind):
        return {}
    if not is_installed_class(kind):
        return own
    module = sys.modules[kind.__module__]
    return {name: value for name, value in own.items() if _is_foreign(value, module, f"{kind.__qualname__}.{name}")}


def foreign_names(module: types.ModuleType) -> dict[str, Any]:
    """Functions and classes in an installed module that another package, or nobody's file, has put there."""
    return {
        name: value
        for name, value in sorted(vars(module).items())
        if isinstance(value, types.FunctionType | type) and not is_library(value) and _is_foreign(value, module, name)
    }


def _is_foreign(value: Any, module: types.ModuleType, name: str) -> bool:
    """True unless a function, through all of its decorators, was written in the package of `module`."""
    value = getattr(value, "__func__", value)
    if isinstance(value, type):
        return root_of(value) != root_of_module(module)
    if not isinstance(value, types.FunctionType):
        return False
    own = _places(root_of_module(module))
    while value is not None:
        if not value.__code__.co_filename.startswith(own):
            return True
        value = getattr(value, "__wrapped__", None)
    return False


def root_of_module(module: types.ModuleType) -> str:
    """The package of a module."""
    return module.__name__.partition(".")[0]


def read(code: types.CodeType) -> tuple[list[str], bytes]:
    """The names that code uses, and the code without its places in a file."""
    names, digest = list(code.co_names), hashlib.sha256(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, code.co_flags)).encode())
    digest.update(repr((code.co_kwonlyargcount, code.co_posonlyargcount)).encode())
    digest.update(code.co_exceptiontable)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, plain = read(constant)
            names += inner
            digest.update(plain)
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(f"{type(constant).__name__} {constant!r}".encode())
    return sorted(set(names)), digest.digest()


@functools.cache
def text_of(name: str) -> bytes:
    """SHA-256 of the text of a module's file; of its name where it has none."""
    path = getattr(sys.modules.get(name), "__file__", None)
    return hashlib.sha256(Path(path).read_bytes() if path and path.endswith(".py") else name.encode()).digest()


def texts(kinds: set[type]) -> dict[str, bytes]:
    """The text of every installed module that defines one of these classes of nn.Module, or what it imports.

    Of the same package only, one step far, and without `harmless.CODE`.
    """
    defining = {one.__module__ for kind in kinds for one in kind.__mro__ if not is_library(one) and not is_own(one)}
    found = {name for name in defining if name in sys.modules and _is_installed_module(sys.modules[name])}
    for name in list(found):
        values = vars(sys.modules[name]).values()
        imported = {getattr(value, "__module__", None) for value in values if callable(value)}
        found |= {one for one in imported if isinstance(one, str) and one.startswith(name.partition(".")[0] + ".")}
    return {name: text_of(name) for name in sorted(found) if not _is_harmless(name)}


def _is_harmless(name: str) -> bool:
    return any(name == one or name.startswith(one + ".") for one in harmless.CODE)


def _is_installed_module(module: types.ModuleType) -> bool:
    place = getattr(module, "__file__", None) or ""
    return place.startswith(_INSTALLED)


@functools.cache
def _folder(package: str) -> str:
    """The folder of a package."""
    place = getattr(sys.modules.get(package), "__file__", None) or ""
    return str(Path(place).parent) + "/" if place.endswith("__init__.py") else place


@functools.cache
def _places(package: str) -> tuple[str, ...]:
    """How the files of code begin that may be in a module of a package."""
    return (_folder(package), "<string>", *_torch_and_python())


@functools.cache
def _torch_and_python() -> tuple[str, ...]:
    return (_folder("torch"), sysconfig.get_path("stdlib") + "/", "<frozen")
