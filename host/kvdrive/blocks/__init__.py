"""Blocks of bytes kept by key in a file, for engines that keep K and V in blocks of their own."""

from kvdrive.blocks.buffers import Buffers
from kvdrive.blocks.store import BlockStore

__all__ = ["BlockStore", "Buffers"]
