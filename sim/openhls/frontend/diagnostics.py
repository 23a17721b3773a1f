# SPDX-License-Identifier: Apache-2.0
"""What clang says about wrong C++, as one sentence with a line of the user; and what the command line may lack.

Clang explains an error inside a template with pages of notes. One of them names the user's line that asked for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from openhls.errors import OpenHlsError

# Headers of the vendor's IP, and of what openhls does not have: nothing on the command line helps.
ABSENT = {
    "hls_fft.h": "the vendor's FFT",
    "hls_fir.h": "the vendor's FIR filter",
    "hls_dds.h": "the vendor's DDS",
    "hls_dsp_builtins.h": "the vendor's DSP blocks",
    "hls_burst_maxi.h": "hls::burst_maxi: access the pointer itself, in loops that become bursts",
    "hls_task.h": "hls::task: call the stages in a DATAFLOW region",
    "hls_np_channel.h": "channels that merge and split: write a stage that reads the streams in turns",
    "ap_float.h": "floating point: use ap_fixed",
    "hls_half.h": "floating point: use ap_fixed",
}
_FIRST = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+):\d+: (?:fatal )?error: (?P<message>.*)$", re.MULTILINE)
_REQUEST = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+):\d+: note: (?:in instantiation|while )", re.MULTILINE)
_COUNT = re.compile(r"^(\d+) errors? generated", re.MULTILINE)
_OWN_WORDS = re.compile(r"static assertion failed.*?: openhls: (.*)")
_UNDECLARED = re.compile(r"undeclared identifier '([A-Z][A-Z0-9_]*)'")
_OF_VENDOR = re.compile(r"(?:hls|ap)_\w+\.h$")
_HEADER = re.compile(r"'([^']+)' file not found")


class WrongCpp(OpenHlsError):
    """C++ that clang refuses. `details` are its own words."""

    def __init__(self, text: str, details: str) -> None:
        self.details = details
        super().__init__(text)


def wrong_cpp(program: str, messages: str, is_users: Callable[[str], bool]) -> OpenHlsError:
    """The error that `messages` of clang become. `is_users`: whether a file is one of the user's."""
    first = _FIRST.search(messages)
    if first is None:
        return OpenHlsError(f"{program} failed:\n{messages.strip()}")
    place = first["file"], first["line"]
    if not is_users(place[0]):
        following = _FIRST.search(messages, first.end())
        notes = _REQUEST.finditer(messages, first.end(), following.start() if following else len(messages))
        place = next(((note["file"], note["line"]) for note in notes if is_users(note["file"])), place)
    message = first["message"]
    own = _OWN_WORDS.match(message)
    count = _COUNT.search(messages)
    others = f" (the first of {count[1]} errors)" if count and int(count[1]) > 1 else ""
    text = (
        f"{place[0]}:{place[1]}: {own[1] if own else message}{others}; {_advice(message)}--verbose prints clang's words"
    )
    return WrongCpp(text, messages.strip())


def _advice(message: str) -> str:
    missing = _HEADER.search(message)
    if missing:
        name = missing[1].rpartition("/")[2]
        if name in ABSENT:
            return f"openhls has not got {ABSENT[name]}; "
        return (
            "openhls has not got this header of the vendor; "
            if _OF_VENDOR.match(name)
            else "give its folder: -I PATH; "
        )
    macro = _UNDECLARED.search(message)
    return f"if it is a macro of the build, give it: -D {macro[1]}=VALUE; " if macro else ""


_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b(.*)$", re.MULTILINE)
_SWITCH = re.compile(r"\b[A-Z]\w*SYNTHESIS\w*\b")


def switches(files: Iterable[Path], defines: Iterable[str]) -> list[str]:
    """Macros that files ask for to tell hardware from software, and that nobody defines."""
    known = {each.partition("=")[0] for each in defines}
    found: dict[str, None] = {}
    for path in files:
        text = path.read_text(errors="replace")
        known |= set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.MULTILINE))
        found |= dict.fromkeys(name for condition in _CONDITION.findall(text) for name in _SWITCH.findall(condition))
    return [name for name in found if name not in known]
