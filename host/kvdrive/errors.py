"""Errors that a user can act on: each message is one sentence that says what to do next or what is not possible."""

from __future__ import annotations


class KvdriveError(Exception):
    """Base of all errors of this package."""


class InputError(KvdriveError):
    """An argument or an input file cannot be used."""


class UnsupportedError(KvdriveError):
    """The model or the call needs something that is not implemented; the message names it."""


class RangeError(KvdriveError):
    """A value does not fit the drive's number format."""


class TargetError(KvdriveError):
    """A drive cannot be opened or used."""


class Stopped(KvdriveError):
    """The user has stopped the work with ^C. The message says what was kept; the exit status is 130."""
