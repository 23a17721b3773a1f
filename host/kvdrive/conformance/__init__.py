"""Checks of a drive against the specification of its commands (docs/command-set.md), over any connection to it."""
