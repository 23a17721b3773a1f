"""Reads of checked pieces: what arrives, what is refused, and how many are in flight."""

import errno
import mmap
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kvdrive._native import PieceReader, crc32c

PAGE = 4096


@pytest.fixture
def data(tmp_path):
    contents = np.random.default_rng(1).integers(0, 256, 96 * PAGE, np.uint8)
    path = tmp_path / "pieces"
    path.write_bytes(contents.tobytes())
    return path, contents


def memory(size):
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def checksums(contents, piece):
    return np.array([crc32c(contents[at : at + piece]) for at in range(0, len(contents), piece)], np.uint32)


def test_pieces_arrive_and_are_counted(data):
    path, contents = data
    reader = PieceReader(path, 2 * PAGE, depth=32)
    to = memory(len(contents))
    assert reader.wait(reader.start(0, to, checksums(contents, 2 * PAGE))) == (0, -1)
    np.testing.assert_array_equal(to, contents)
    found = reader.counters()
    assert (found["reads"], found["bytes"]) == (48, len(contents))
    assert found["most_in_flight"] == 32
    assert found["busy_ns"] > 0


def test_the_last_piece_of_a_read_may_be_shorter(data):
    path, contents = data
    reader = PieceReader(path, 4 * PAGE)
    part, to = contents[3 * PAGE : 9 * PAGE], memory(6 * PAGE)
    assert reader.wait(reader.start(3 * PAGE, to, checksums(part, 4 * PAGE))) == (0, -1)
    np.testing.assert_array_equal(to, part)
    assert reader.counters()["reads"] == 2


def test_another_checksum_names_the_first_bad_piece(data):
    path, contents = data
    sums = checksums(contents, PAGE)
    sums[[40, 7]] ^= 1
    reader = PieceReader(path, PAGE)
    to = memory(len(contents))
    assert reader.wait(reader.start(0, to, sums)) == (0, 7)
    assert reader.wait(reader.start(0, to[: 7 * PAGE], sums[:7])) == (0, -1)


def test_a_read_behind_the_end_of_the_file_is_an_error(data):
    path, contents = data
    reader = PieceReader(path, PAGE)
    with path.open("r+b") as file:
        file.truncate(50 * PAGE)
    to = memory(len(contents))
    assert reader.wait(reader.start(0, to, checksums(contents, PAGE)))[0] == errno.EIO
    assert reader.wait(reader.start(0, to[:PAGE], checksums(contents[:PAGE], PAGE))) == (0, -1)


def test_reads_ahead_leave_most_of_the_queue_to_others(data):
    path, contents = data
    reader = PieceReader(path, PAGE, depth=32)
    ahead, to = memory(len(contents)), memory(len(contents))
    sums = checksums(contents, PAGE)
    first = reader.start(0, ahead, sums, ahead=True)
    assert reader.wait(first) == (0, -1)
    assert reader.counters()["most_in_flight"] == 4
    tickets = [reader.start(0, ahead, sums, ahead=True), reader.start(0, to, sums)]
    reader.hurry(tickets[0])
    for ticket in reversed(tickets):
        assert reader.wait(ticket) == (0, -1)
    np.testing.assert_array_equal(ahead, contents)
    np.testing.assert_array_equal(to, contents)


def test_a_cancelled_read_ends_when_its_pieces_in_flight_have_ended(data):
    path, contents = data
    reader = PieceReader(path, PAGE, depth=1)
    first, to, sums = memory(len(contents)), memory(len(contents)), checksums(contents, PAGE)
    front = reader.start(0, first, sums)
    tickets = [reader.start(0, to, sums, ahead=ahead) for ahead in (False, True)]  # behind 96 pieces
    assert [reader.cancel(ticket) for ticket in tickets] == [True, True]
    assert [reader.wait(ticket) for ticket in tickets] == [(errno.ECANCELED, -1)] * 2
    assert reader.wait(front) == (0, -1)
    np.testing.assert_array_equal(first, contents)
    found = reader.counters()
    assert found["reads"] + found["cancelled"] == 3 * 96
    assert reader.cancel(reader.start(0, to, sums)) in (True, False)
    ended = reader.start(0, to[:PAGE], sums[:1])
    reader.wait(ended)
    assert not reader.cancel(ended)


def test_closing_a_reader_drops_reads_that_have_not_begun(data):
    path, contents = data
    reader = PieceReader(path, PAGE, depth=1)
    to, sums = memory(len(contents)), checksums(contents, PAGE)
    for _ in range(20):
        reader.start(0, to, sums)
    del reader
    to[:] = 0  # nothing is written any more
    assert not to.any()


@pytest.mark.parametrize(("offset", "size"), [(1, PAGE), (0, PAGE + 1), (0, 0)])
def test_other_places_than_whole_pages_are_refused(data, offset, size):
    path, _ = data
    reader = PieceReader(path, PAGE)
    with pytest.raises(RuntimeError, match="a read"):
        reader.start(offset, memory(2 * PAGE)[:size], np.zeros(1, np.uint32))


def test_the_end_of_a_read_can_be_asked_for_once(data):
    path, contents = data
    reader = PieceReader(path, PAGE)
    ticket = reader.start(0, memory(PAGE), checksums(contents[:PAGE], PAGE))
    reader.wait(ticket)
    with pytest.raises(RuntimeError, match="no read has this ticket"):
        reader.wait(ticket)


def test_of_two_threads_that_wait_for_a_read_one_is_refused(data):
    path, contents = data
    reader = PieceReader(path, PAGE, depth=1)
    to, sums = memory(len(contents)), checksums(contents, PAGE)
    for _ in range(40):
        last = reader.start(0, to, sums)  # behind all the others, so that both threads wait

    def outcome(_):
        try:
            return reader.wait(last)
        except RuntimeError as error:
            return str(error)

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(outcome, range(2)))
    assert sorted(map(str, found)) == ["(0, -1)", "no read has this ticket"]


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match="No such file"):
        PieceReader(tmp_path / "missing", PAGE)


_REFUSED = """
import ctypes, errno, mmap, struct, sys
import numpy as np
from kvdrive._native import PieceReader

IO_URING_ENTER, LOAD, IF_EQUAL, RETURN, ALLOW, FAIL = 426, 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000
rules = [(LOAD, 0, 0, 0), (IF_EQUAL, 0, 1, IO_URING_ENTER), (RETURN, 0, 0, FAIL | errno.EPERM), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("@HP", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
for arguments in ((38, 1, 0, 0, 0), (22, 2, ctypes.byref(program), 0, 0)):  # no new privileges, then the filter
    if libc.prctl(*arguments):
        sys.exit("seccomp: " + errno.errorcode[ctypes.get_errno()])
reader = PieceReader(sys.argv[1], 4096)
memory = np.frombuffer(mmap.mmap(-1, 8192), np.uint8)
for _ in range(2):
    print(*reader.wait(reader.start(0, memory, np.zeros(2, np.uint32))))
"""


def test_a_kernel_that_takes_no_reads_fails_them_and_not_the_process(data):
    path, _ = data
    if not PieceReader(path, PAGE).asynchronous:
        pytest.skip("the kernel has no io_uring")
    command = [sys.executable, "-c", _REFUSED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{errno.EPERM} -1"] * 2
