"""A headless Chromium over its DevTools protocol, for the page of `kvdrive serve`: two pipes, no other package."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_SECONDS = 30
_KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}
_AXE = "axe_playwright_python"  # a package that carries axe-core


def program() -> str | None:
    """The browser on this machine; None without one."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def axe() -> str | None:
    """The program of axe-core, which looks at a page for what shuts somebody out; None if it is not installed.

    Only its file is read: the package that carries it is not imported.
    """
    found = importlib.util.find_spec(_AXE)
    places = list(found.submodule_search_locations or ()) if found else []
    return next((one.read_text("utf-8") for place in places for one in Path(place).rglob("axe.min.js")), None)


class _Process:
    """The browser and its two pipes. Its profile goes with it. `events`: who is told of the events of a session."""

    def __init__(self, path: str) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="kvdrive-browser-", ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        command = [path, *options, f"--user-data-dir={self._profile.name}", "about:blank"]
        script = f'exec "$@" 3<&{to_read} 4>&{to_write}'  # the numbers that the browser expects
        self._process = subprocess.Popen(
            ["bash", "-c", script, "browser", *command], pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._number = 0
        self._buffer = b""
        self.events: dict[str, Callable[[dict[str, Any]], None]] = {}

    def command(self, session: str, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The result of a command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self.events.get(answer.get("sessionId", ""), lambda event: None)(answer)

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(_SECONDS)
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], _SECONDS)
            chunk = os.read(self._from, 1 << 16) if ready else b""
            assert chunk, "the browser does not answer"
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(line))


class Page:
    """A tab. `errors`: what it reported: exceptions, and what its policy refused."""

    def __init__(self, process: _Process) -> None:
        self._process = process
        self.errors: list[str] = []
        self._target = process.command("", "Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = process.command("", "Target.attachToTarget", {"targetId": self._target, "flatten": True})
        self._session: str = attached["sessionId"]
        process.events[self._session] = self._note
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command of the protocol; those of the domain Browser are for all tabs."""
        session = "" if method.startswith("Browser.") else self._session
        return self._process.command(session, method, parameters)

    def open(self, address: str) -> None:
        """Go to an address, or load it again, and wait for the document."""
        self.command("Page.navigate", url="about:blank")
        self.command("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, script: str) -> Any:
        """The value of an expression of the page, as JSON."""
        found = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = _SECONDS) -> None:
        """Wait until an expression of the page is true, `seconds` at most."""
        deadline = time.monotonic() + seconds
        while not self.value(script):
            if time.monotonic() > deadline:
                shown = self.value("document.body.innerText")
                raise AssertionError(f"not true after {seconds:g} s: {script}\nThe page shows: {shown}")
            time.sleep(0.02)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.command("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press and release a key: Enter, Escape or Tab."""
        code, text = _KEYS[key]
        same = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.command("Input.dispatchKeyEvent", type="keyDown", text=text, **same)
        self.command("Input.dispatchKeyEvent", type="keyUp", **same)

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Show the page in a window of this size, and say whether the user likes dark pages."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))

    @contextmanager
    def another(self) -> Iterator[Page]:
        """A second tab of the same browser, beside this one."""
        other = Page(self._process)
        yield other
        self._process.command("", "Target.closeTarget", {"targetId": other._target})

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(event["params"]["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["source"] == "security":
            self.errors.append(event["params"]["entry"]["text"])


class Browser(Page):
    """One page in a browser of its own."""

    def __init__(self, path: str) -> None:
        process = _Process(path)
        try:
            super().__init__(process)
        except BaseException:
            process.close()
            raise

    def close(self) -> None:
        """End the browser."""
        self._process.close()

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
