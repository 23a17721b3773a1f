"""Checks of the Key Value command set (namespace 4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvdrive.conformance.bench import Bench, MismatchError, with_fields
from kvdrive.conformance.device import Ability
from kvdrive.conformance.suite import check
from kvdrive.nvme import admin, commands, values, wire
from kvdrive.nvme.commands import Command

Bytes = NDArray[np.uint8]
S, R = wire.StoreOption, wire.RetrieveOption
PAGE = 4096
_DELETE_REPORTS = 1  # value of the feature


def holds_value(bench: Bench, key: bytes, want: Bytes) -> None:
    """A key has exactly this value."""
    found = bench.ok(values.retrieve(key, want.size))
    bench.same("bytes of the value", values.value_size(found.result), want.size)
    bench.same("the value", found.data[: want.size], want)


def lacks(bench: Bench, key: bytes) -> None:
    """A key does not exist."""
    bench.refused("KEY_DOES_NOT_EXIST", values.exist(key))


def of_value(command: Command, **fields: int) -> Command:
    """The command with other values in some fields."""
    return with_fields(command, wire.ValueCommand, **fields)


def store_parts(bench: Bench, key: bytes, value: Bytes, parts: int, options: int = 0) -> int:
    """Send the first `parts` pages of a value; returns the number of the upload."""
    upload = 0
    for offset in range(0, parts * PAGE, PAGE):
        part = value[offset : offset + PAGE]
        fields = {"upload": upload, "offset": offset, "total": value.size}
        upload = bench.ok(values.store(key, part, options | S.STORE_PART, **fields)).result
    return upload


@check("STORE", "values of any size are read as they were stored, under keys of 1 to 16 bytes")
def _(bench: Bench) -> None:
    keys = [bench.key(16), bench.key(9), bench.key(8)]
    sizes = [1, PAGE - 1, PAGE, PAGE + 1, 40_000, 0]
    stored = {}
    for size in sizes:
        for key in keys:
            stored[key] = bench.rng.integers(0, 256, size, np.uint8)
            bench.ok(values.store(key, stored[key]))
        for key in keys:
            holds_value(bench, key, stored[key])
    bench.ok(of_value(values.store(keys[0], bench.noise(1)), options=S.STORE_UNCOMPRESSED))


@check("STORE", "bytes behind a key's length do not count, and a key is no other than itself")
def _(bench: Bench) -> None:
    key, value = bench.key(7), bench.noise(1)
    bench.ok(of_value(values.store(key + b"x", value), key_bytes=7))
    holds_value(bench, key, value)
    for other in (key[:-1], key + b"\0", key + b"x"):
        lacks(bench, other)


@check("STORE", "its conditions hold, and a refused store changes nothing")
def _(bench: Bench) -> None:
    key, first, second = bench.key(), bench.noise(1), bench.noise(2)
    bench.refused("KEY_DOES_NOT_EXIST", values.store(key, first, S.STORE_MUST_EXIST))
    lacks(bench, key)
    bench.ok(values.store(key, first, S.STORE_MUST_NOT_EXIST))
    bench.refused("KEY_EXISTS", values.store(key, second, S.STORE_MUST_NOT_EXIST))
    holds_value(bench, key, first)
    bench.ok(values.store(key, second, S.STORE_MUST_EXIST))
    holds_value(bench, key, second)


@check("STORE", "unknown options, wrong keys, fields without their option and other lengths are refused")
def _(bench: Bench) -> None:
    key, value = bench.key(), bench.noise(1)
    plain = values.store(key, value)
    for fields in (
        {"options": 0x08},
        {"options": S.STORE_MUST_EXIST | S.STORE_MUST_NOT_EXIST},
        {"key_bytes": 17},
        {"upload": 1},
        {"offset": PAGE},
        {"total": PAGE},
    ):
        bench.refused("INVALID_FIELD", of_value(plain, **fields))
    bench.refused("INVALID_KEY_SIZE", of_value(plain, key_bytes=0))
    bench.refused("DATA_LENGTH", of_value(plain, size=PAGE + 1))
    lacks(bench, key)


@check("STORE", "a value that arrives in parts appears with the last one")
def _(bench: Bench) -> None:
    key, old = bench.key(), bench.noise(1)
    new = bench.rng.integers(0, 256, 3 * PAGE + 5, np.uint8)
    bench.ok(values.store(key, old))
    upload = store_parts(bench, key, new, 3)
    if upload == 0:
        raise MismatchError("STORE returned no number for an upload")
    holds_value(bench, key, old)
    again = values.store(key, new[PAGE : 2 * PAGE], S.STORE_PART, upload=upload, offset=PAGE, total=new.size)
    bench.same("the number of a part that is sent again", bench.ok(again).result, upload)
    last = values.store(key, new[3 * PAGE :], S.STORE_PART, upload=upload, offset=3 * PAGE, total=new.size)
    bench.same("the result of the last part", bench.ok(last).result, 0)
    holds_value(bench, key, new)
    bench.refused("COMMAND_SEQUENCE", last)
    other = bench.key()
    bench.ok(values.store(other, new, S.STORE_PART, total=new.size))
    holds_value(bench, other, new)


@check("STORE", "uploads of one key do not mix, and their conditions are those of the last part")
def _(bench: Bench) -> None:
    key = bench.key()
    both = [bench.noise(2) for _ in range(2)]
    uploads = [store_parts(bench, key, value, 1) for value in both]
    for value, upload in zip(both, uploads, strict=True):
        part = values.store(key, value[PAGE:], S.STORE_PART, upload=upload, offset=PAGE, total=value.size)
        bench.ok(part)
        holds_value(bench, key, value)
    upload = store_parts(bench, key, both[0], 1)
    fields = {"upload": upload, "offset": PAGE, "total": 2 * PAGE}
    bench.refused("KEY_EXISTS", values.store(key, both[0][PAGE:], S.STORE_PART | S.STORE_MUST_NOT_EXIST, **fields))
    holds_value(bench, key, both[1])


@check("STORE", "parts out of order, of other sizes or of no upload are refused")
def _(bench: Bench) -> None:
    key, value = bench.key(), bench.noise(4)
    upload = store_parts(bench, key, value, 1)
    part = values.store(key, value[:PAGE], S.STORE_PART, upload=upload, offset=PAGE, total=value.size)
    for status, fields in (
        ("COMMAND_SEQUENCE", {"offset": 2 * PAGE}),
        ("COMMAND_SEQUENCE", {"upload": upload ^ 0x5A5A}),
        ("COMMAND_SEQUENCE", {"total": 3 * PAGE}),
        ("INVALID_VALUE_SIZE", {"total": PAGE}),
        ("INVALID_VALUE_SIZE", {"total": wire.MAX_VALUE_BYTES + PAGE}),
        ("INVALID_FIELD", {"offset": 1}),
        ("INVALID_FIELD", {"upload": 0}),
        ("INVALID_FIELD", {"offset": 0}),
    ):
        bench.refused(status, of_value(part, **fields))
    for size in (0, PAGE - 1):
        short = Command(part.entry, value[:size])
        bench.refused("INVALID_FIELD", of_value(short, size=size))
    lacks(bench, key)
    bench.ok(part)


@check("STORE", "a reset of the controller drops values of which parts are missing")
def _(bench: Bench) -> None:
    key, value = bench.key(), bench.noise(2)
    upload = store_parts(bench, key, value, 1)
    bench.device.reset()
    part = values.store(key, value[PAGE:], S.STORE_PART, upload=upload, offset=PAGE, total=value.size)
    bench.refused("COMMAND_SEQUENCE", part)
    lacks(bench, key)


@check("RETRIEVE", "parts of a value come from any byte on, in buffers of any size")
def _(bench: Bench) -> None:
    key, value = bench.key(), bench.rng.integers(0, 256, 3 * PAGE + 100, np.uint8)
    bench.ok(values.store(key, value))
    for offset, size in ((0, 10), (1, PAGE), (PAGE - 1, 2), (PAGE, 2 * PAGE), (3 * PAGE, 500), (value.size, 8), (0, 0)):
        done = bench.ok(values.retrieve(key, size, offset))
        want = value[offset : offset + size]
        bench.same("bytes of the whole value", values.value_size(done.result), value.size)
        bench.same(f"{size} bytes from byte {offset} on", done.data[: want.size], want)
    bench.ok(of_value(values.retrieve(key, 4), options=R.RETRIEVE_RAW))


@check("RETRIEVE", "many in flight return each its own value, and the version changes with the value")
def _(bench: Bench) -> None:
    stored = {bench.key(): bench.noise(1 + i % 3) for i in range(16)}
    for key, value in stored.items():
        bench.ok(values.store(key, value))
    reads = [values.retrieve(key, value.size) for key, value in stored.items()]
    for command, done, value in zip(reads, bench.device.send_many(reads), stored.values(), strict=True):
        bench.same("the status", bench.note(command, done).status, 0)
        bench.same("the value", done.data[: value.size], value)
    key, value = next(iter(stored.items()))
    before = bench.ok(values.retrieve(key, 0)).result
    bench.same("the result of a second RETRIEVE", bench.ok(values.retrieve(key, 0)).result, before)
    bench.ok(values.store(key, value))
    after = bench.ok(values.retrieve(key, 0)).result
    bench.same("a new version", values.value_version(after) != values.value_version(before), True)


@check("RETRIEVE", "keys that do not exist, wrong keys, options, fields and short buffers are refused")
def _(bench: Bench) -> None:
    key, value = bench.key(), bench.noise(1)
    bench.refused("KEY_DOES_NOT_EXIST", values.retrieve(key, PAGE))
    bench.ok(values.store(key, value))
    plain = values.retrieve(key, PAGE)
    for fields in ({"options": 0x02}, {"key_bytes": 17}, {"offset": 1}, {"upload": 1}, {"total": 1}):
        bench.refused("INVALID_FIELD", of_value(plain, **fields))
    bench.refused("INVALID_KEY_SIZE", of_value(plain, key_bytes=0))
    bench.refused("DATA_LENGTH", of_value(plain, size=2 * PAGE))


@check("LIST", "it sends the keys from a given one on, in order, as many as the buffer takes")
def _(bench: Bench) -> None:
    keys = sorted(bench.key(length) for length in (8, 16, 9, 11, 8, 16))
    prefix = keys[0][:7]
    for key in keys:
        bench.ok(values.store(key, bench.noise(1)))
    mine = values.listed(bench.ok(values.list_keys(prefix, PAGE)).data)
    bench.same("the keys", [key for key in mine if key in keys], keys)
    bench.same("their order", mine, sorted(mine))
    for i, key in enumerate(keys):
        found = values.listed(bench.ok(values.list_keys(key, PAGE)).data)
        bench.same("the keys from one on", [key for key in found if key in keys], keys[i:])
    bench.same("a small buffer", values.listed(bench.ok(values.list_keys(keys[0], 28)).data), keys[:1])
    bench.same("a buffer without a key", values.listed(bench.ok(values.list_keys(keys[0], 4)).data), [])
    bench.ok(values.delete(keys[2]))
    found = values.listed(bench.ok(values.list_keys(keys[1], PAGE)).data)
    bench.same("the keys without a deleted one", [key for key in found if key in keys], [keys[1], *keys[3:]])
    bench.same("the first key of all", bench.ok(values.list_keys(b"", PAGE)).data[:4].view(np.uint32)[0] > 0, True)


@check("LIST", "tiny buffers, long keys and other fields are refused")
def _(bench: Bench) -> None:
    bench.refused("INVALID_FIELD", values.list_keys(b"", 3))
    for fields in ({"options": 1}, {"key_bytes": 17}, {"offset": 1}, {"upload": 1}, {"total": 1}):
        bench.refused("INVALID_FIELD", of_value(values.list_keys(b"", PAGE), **fields))
    bench.refused("DATA_LENGTH", of_value(values.list_keys(b"", PAGE), size=2 * PAGE))


@check("EXIST", "it succeeds for keys that exist, and sends nothing")
def _(bench: Bench) -> None:
    key = bench.key()
    lacks(bench, key)
    bench.ok(values.store(key, bench.noise(1)))
    bench.same("bytes sent", bench.ok(values.exist(key)).data.size, 0)
    bench.ok(values.delete(key))
    lacks(bench, key)
    for fields in ({"options": 1}, {"key_bytes": 17}, {"size": 1}, {"offset": 1}, {"upload": 1}, {"total": 1}):
        bench.refused("INVALID_FIELD", of_value(values.exist(key), **fields))
    bench.refused("INVALID_KEY_SIZE", of_value(values.exist(key), key_bytes=0))


@check("DELETE", "the key is gone; a missing key is an error only if the feature says so")
def _(bench: Bench) -> None:
    key, value = bench.key(), bench.noise(2)
    feature = wire.Feature.FEATURE_KEY_VALUE
    before = bench.ok(admin.get_feature(feature), admin=True).result
    set_feature = admin.set_feature(feature, _DELETE_REPORTS)
    try:
        bench.ok(with_fields(admin.set_feature(feature, 0), nsid=wire.NSID_VALUES), admin=True)
        bench.ok(values.delete(key))
        bench.ok(values.store(key, value))
        bench.ok(values.delete(key))
        lacks(bench, key)
        bench.ok(set_feature, admin=True)
        bench.same("the feature", bench.ok(admin.get_feature(feature), admin=True).result, _DELETE_REPORTS)
        bench.refused("KEY_DOES_NOT_EXIST", values.delete(key))
        bench.ok(values.store(key, value))
        bench.ok(values.delete(key))
        lacks(bench, key)
        for fields in ({"options": 1}, {"key_bytes": 17}, {"size": 1}, {"offset": 1}, {"upload": 1}, {"total": 1}):
            bench.refused("INVALID_FIELD", of_value(values.delete(key), **fields))
        bench.refused("INVALID_KEY_SIZE", of_value(values.delete(key), key_bytes=0))
    finally:
        bench.device.send(admin.set_feature(feature, before), admin=True)


@check("STORE", "a full drive refuses values and parts, and keeps what it has", Ability.FAULTS)
def _(bench: Bench) -> None:
    key, value = bench.key(), bench.noise(2)
    bench.ok(values.store(key, value))
    bench.device.inject("full", 1)
    bench.refused("CAPACITY_EXCEEDED", values.store(key, bench.noise(3)))
    upload = store_parts(bench, key, value, 1)
    bench.device.inject("full")
    part = values.store(key, value[PAGE:], S.STORE_PART, upload=upload, offset=PAGE, total=value.size)
    bench.refused("CAPACITY_EXCEEDED", part)
    bench.device.inject("full", 0, 0)
    holds_value(bench, key, value)
    bench.refused("COMMAND_SEQUENCE", part)


@check("RETRIEVE", "a lost page of a value is reported, and no data are sent", Ability.FAULTS)
def _(bench: Bench) -> None:
    key, value = bench.key(), bench.noise(1000)
    bench.ok(values.store(key, value))
    bench.ok(values.flush())
    bench.device.inject("read_uncorrectable")
    bench.refused("UNRECOVERED_ERROR", values.retrieve(key, PAGE))
    holds_value(bench, key, value)


@check("FLUSH_VALUES", "stores and deletes before it survive a loss of power, uploads do not", Ability.POWER)
def _(bench: Bench) -> None:
    kept, gone, value = bench.key(), bench.key(), bench.noise(3)
    bench.ok(values.store(gone, value))
    bench.ok(values.store(kept, bench.noise(2)))
    bench.ok(values.flush())
    bench.ok(values.store(kept, value))
    bench.ok(values.delete(gone))
    store_parts(bench, kept, bench.noise(2), 1)
    bench.ok(values.flush())
    bench.device.lose_power()
    holds_value(bench, kept, value)
    lacks(bench, gone)


@check("FLUSH_VALUES", "flash that cannot be written is an error", Ability.FAULTS | Ability.POWER)
def _(bench: Bench) -> None:
    bench.ok(values.store(bench.key(), bench.noise(1)))
    bench.device.inject("power_cut")
    bench.refused("INTERNAL_ERROR", values.flush())
    bench.device.lose_power()


@check("STORE", "with force unit access it survives a loss of power, alone and in parts", Ability.POWER)
def _(bench: Bench) -> None:
    for parts in (0, 2):
        key, value = bench.key(), bench.noise(2)
        if parts:
            store_parts(bench, key, value, parts, S.STORE_FUA)
        else:
            bench.ok(values.store(key, value, S.STORE_FUA))
        bench.device.lose_power()
        holds_value(bench, key, value)


@check("FORMAT_NVM", "values are removed by their namespace's number, and sessions stay", Ability.EMPTY)
def _(bench: Bench) -> None:
    stored, key = bench.store(tokens=9), bench.key()
    bench.ok(values.store(key, bench.noise(1)))
    bench.ok(admin.command(wire.AdminOpcode.FORMAT_NVM, nsid=1), admin=True)
    bench.ok(values.exist(key))
    bench.refused("UNKNOWN_SESSION", commands.session_trim(stored.number, 0))
    stored = bench.store(tokens=9)
    bench.ok(admin.command(wire.AdminOpcode.FORMAT_NVM, nsid=wire.NSID_VALUES), admin=True)
    lacks(bench, key)
    bench.ok(commands.session_trim(stored.number, 0))


@check("SANITIZE", "values are gone", Ability.EMPTY)
def _(bench: Bench) -> None:
    key = bench.key()
    bench.ok(values.store(key, bench.noise(2)))
    bench.ok(admin.sanitize(), admin=True)
    lacks(bench, key)


@check("IDENTIFY", "the namespace of values says how long keys and values may be, and counts what it holds")
def _(bench: Bench) -> None:
    def found() -> dict[str, int]:
        data = bench.ok(admin.identify(wire.Cns.CNS_CSI_NAMESPACE, wire.NSID_VALUES, 1), admin=True).data
        formats = data[72:88].view(wire.KeyValueFormat)[0]
        limits = {name: int(formats[name]) for name in ("key_bytes", "value_bytes")}
        return limits | {name: admin.decode(wire.KeyValueNamespace, data)[name] for name in ("nsze", "nuse")}

    before, key = found(), bench.key(16)
    bench.ok(values.store(key, bench.noise(1)))
    after = found()
    bench.same("the longest key", after["key_bytes"], wire.MAX_KEY_BYTES)
    bench.same("the longest value", after["value_bytes"] >= 16 << 20, True)
    bench.same("bytes in use", after["nuse"] - before["nuse"], PAGE + len(key))
    bench.same("bytes of the namespace", after["nsze"], bench.size * wire.LBA_BYTES)
    pages = bench.ok(admin.identify(wire.Cns.CNS_NAMESPACE, wire.NSID_VALUES), admin=True).data
    blocks = admin.decode(wire.IdentifyNamespace, pages)
    bench.same("the size where hosts ask before they know the set", blocks["ncap"] * wire.LBA_BYTES, after["nsze"])
