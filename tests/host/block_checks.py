"""What tests of blocks store, and how they look for it."""

from kvdrive.prefix.blocks.buffers import Buffers
from kvdrive.prefix.blocks.seal import HEADER_BYTES
from kvdrive.prefix.blocks.store import BlockStore

BLOCK = 10_000
SLOT = 12_288  # header, block, padding to 4096


def key(number: int) -> bytes:
    return number.to_bytes(32, "little")


def fill(blocks: BlockStore, buffers: Buffers, numbers: list[int]) -> list[int]:
    """Store blocks whose bytes are their number. Returns those that were written."""
    reserved = blocks.reserve([key(number) for number in numbers])
    written = []
    for one in reserved:
        buffers[0][HEADER_BYTES:] = one[0]
        if blocks.write(one, buffers[0]):
            written.append(one)
    blocks.finish(written, [one for one in reserved if one not in written])
    return [one[0] for one in written]


def found(blocks: BlockStore, buffers: Buffers, number: int) -> bool:
    """True if the block is read, and its bytes are right."""
    if blocks.read([key(number)], [buffers[1]]) != [True]:
        return False
    assert (buffers[1][HEADER_BYTES : HEADER_BYTES + BLOCK] == number).all()
    return True
