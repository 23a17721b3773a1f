"""Drives that the runtime can use: one file per kind, all behind `base.Target`."""
