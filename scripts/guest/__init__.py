"""A Linux guest in QEMU: kernel, tools and emulator from Debian's packages, nothing installed on this system.

`image.prepare` fetches and unpacks them once into build/guest; `Guest` boots with a script and talks to it.
"""

from guest.image import GuestUnavailableError, Image, prepare
from guest.machine import Guest

__all__ = ["Guest", "GuestUnavailableError", "Image", "prepare"]
