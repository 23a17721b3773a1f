"""Constants, opcodes and memory layouts shared with the kernels and the drive.

Generated from abi/abi.toml by abi/generate.py; do not edit.
"""

# fmt: off
from enum import IntEnum, IntFlag

import numpy as np

ABI_VERSION = 1
BEAT_BITS = 512
BEAT_BYTES = 64
LANES = 32
MAX_HEAD_DIM = 256
HEAD_DIM_STEP = 32
MAX_GROUP = 8
MAX_TOKENS = 131072
MAX_TOP_K = 16384
INSERTION_K = 32
INSERTION_KEYS = 512
MIN_ROW_BYTES = 32
MAX_ROW_BYTES = 512
ROW_BYTES_STEP = 32
PAGE_BYTES = 4096
SCORE_FRACTION_BITS = 20
P_FRACTION_BITS = 31
EXP2_INDEX_BITS = 6
EXP2_C0_BITS = 22
EXP2_C1_BITS = 17
EXP2_C2_BITS = 11
EXP2_BITS = 19
EXP2_ROUNDING = 5
WEIGHT_BITS = 24
SQE_BYTES = 64
CQE_BYTES = 16
CQE_STATUS_SHIFT = 1
CQE_DO_NOT_RETRY = 32768
COMMAND_HEAD_DIM_STEP = 8
MAX_COMMAND_GROUP = 128
FORMAT_PART = 32
SPAN_TOKENS = 32
MIN_INDEX_EXPONENT = 2
MAX_INDEX_EXPONENT = 34
GROUP_SIZES = (1, 2, 4, 5, 8)
FILTER_PAGE_BYTES = (4096, 8192, 16384)
COMMAND_GROUPS = (
    1, 2, 3, 4, 5, 6, 7, 8,
    9, 10, 11, 12, 13, 14, 15, 16,
    24, 32, 40, 48, 56, 64, 72, 80,
    88, 96, 104, 112, 120, 128,
)
UNIT_TOKENS = (16, 32, 64, 128)
CHOICE_HEAD_DIMS = (32, 64, 128, 256)
EXP2_C0 = (
    4194304, 4239977, 4286147, 4332820, 4380002, 4427697, 4475911, 4524651,
    4573921, 4623728, 4674077, 4724974, 4776426, 4828438, 4881016, 4934167,
    4987896, 5042211, 5097117, 5152621, 5208729, 5265449, 5322786, 5380747,
    5439339, 5498570, 5558445, 5618973, 5680159, 5742012, 5804539, 5867746,
    5931642, 5996233, 6061528, 6127533, 6194258, 6261709, 6329894, 6398822,
    6468501, 6538938, 6610143, 6682122, 6754886, 6828442, 6902799, 6977965,
    7053950, 7130763, 7208412, 7286906, 7366255, 7446469, 7527555, 7609525,
    7692387, 7776152, 7860829, 7946428, 8032959, 8120432, 8208857, 8298246,
)
EXP2_C1 = (
    90852, 91842, 92842, 93853, 94875, 95908, 96952, 98008,
    99075, 100154, 101244, 102347, 103461, 104588, 105727, 106878,
    108042, 109219, 110408, 111610, 112825, 114054, 115296, 116552,
    117821, 119104, 120401, 121712, 123037, 124377, 125731, 127100,
    128484, 129883, 131298, 132728, 134173, 135634, 137111, 138604,
    140113, 141639, 143181, 144740, 146317, 147910, 149520, 151149,
    152795, 154458, 156140, 157841, 159559, 161297, 163053, 164829,
    166624, 168438, 170272, 172126, 174001, 175895, 177811, 179747,
)
EXP2_C2 = (
    492, 497, 503, 508, 514, 519, 525, 531,
    537, 542, 548, 554, 560, 566, 573, 579,
    585, 591, 598, 604, 611, 618, 624, 631,
    638, 645, 652, 659, 666, 674, 681, 688,
    696, 703, 711, 719, 727, 734, 742, 751,
    759, 767, 775, 784, 792, 801, 810, 819,
    827, 836, 846, 855, 864, 873, 883, 893,
    902, 912, 922, 932, 942, 953, 963, 973,
)


class Mode(IntEnum):
    EXACT = 0x0
    PARTIAL = 0x1
    SPARF_ROWS = 0x2
    SPARF_TOKENS = 0x3
    SPARF_ATTEND = 0x4
    GROUPS = 0x5


class KeyType(IntEnum):
    BINARY32 = 0x0
    MAGNITUDE16 = 0x1


class Status(IntFlag):
    BAD_VERSION = 0x1
    BAD_MODE = 0x2
    BAD_GROUP = 0x4
    BAD_HEAD_DIM = 0x8
    BAD_LENGTH = 0x10
    BAD_R = 0x20
    BAD_K = 0x40
    UNALIGNED = 0x80
    OUT_OF_RANGE = 0x100
    BAD_SCALE = 0x200
    BAD_ROW_BYTES = 0x400
    BAD_PAGE_BYTES = 0x800
    BAD_UNIT = 0x1000
    BAD_EXPONENT = 0x2000
    NON_FINITE = 0x10000
    EMPTY = 0x20000


class Opcode(IntEnum):
    FLUSH = 0x0
    KV_APPEND = 0x81
    KV_READ = 0x82
    SESSION_TRIM = 0x84
    ATTN_SUBMIT = 0x85
    ATTN_FETCH = 0x86
    SESSION_FORK = 0x88
    SESSION_ERASE = 0x8c
    FFN_SUBMIT = 0x8d
    SESSION_REMOVE = 0x90
    ATTN_SUBMIT_ROWS = 0x91


class Namespace(IntEnum):
    NVM = 0x1
    CP = 0x3


class KvKind(IntEnum):
    KEYS = 0x0
    VALUES = 0x1


class AppendOption(IntEnum):
    APPEND_FUA = 0x1
    APPEND_SPARSE = 0x2
    APPEND_GROUPS = 0x4


class NvmeStatus(IntEnum):
    SUCCESS = 0x0
    INVALID_OPCODE = 0x1
    INVALID_FIELD = 0x2
    INTERNAL_ERROR = 0x6
    INVALID_NAMESPACE = 0xb
    DATA_LENGTH = 0xf
    CAPACITY_EXCEEDED = 0x81
    UNRECOVERED_READ = 0x281
    CRC_MISMATCH = 0x701
    OUT_OF_SEQUENCE = 0x702
    UNKNOWN_SESSION = 0x703
    TOKEN_GAP = 0x704
    TOKENS_MISSING = 0x705
    ROW_MISMATCH = 0x706
    UNKNOWN_TICKET = 0x707
    TICKETS_EXHAUSTED = 0x708
    VALUE_NOT_FINITE = 0x709
    NO_VALID_TOKEN = 0x70a
    JOB_REFUSED = 0x70b
    SESSION_EXISTS = 0x70c


AttentionJob = np.dtype([
    ("version", "<u2"), ("mode", "<u1"), ("group", "<u1"), ("head_dim", "<u2"), ("r", "<u2"), ("tokens", "<u4"),
    ("inline_tokens", "<u4"), ("k_top", "<u4"), ("local", "<u4"), ("scale_log2e", "<u4"), ("count", "<u4"),
    ("q", "<u8"), ("k", "<u8"), ("v", "<u8"), ("inline_scores", "<u8"), ("inline_v", "<u8"), ("valid", "<u8"),
    ("rows", "<u8"), ("v_sum", "<u8"), ("out", "<u8"), ("result", "<u8"), ("reserved", "<u8", (2,)),
])
AttentionResult = np.dtype([
    ("status", "<u4"), ("selected", "<u4"), ("reserved0", "<u4", (2,)), ("max", "<i4", (8,)),
    ("reserved1", "<u4", (4,)), ("sum", "<u8", (8,)), ("scale", "<u4", (8,)), ("alpha", "<u4", (8,)),
])
GroupChoiceJob = np.dtype([
    ("version", "<u2"), ("group", "<u1"), ("unit", "<u1"), ("head_dim", "<u2"), ("exponent", "<u2"), ("tokens", "<u4"),
    ("inline_tokens", "<u4"), ("k_top", "<u4"), ("scale_log2e", "<u4"), ("reserved0", "<u8"), ("q", "<u8"),
    ("index", "<u8"), ("inline_scores", "<u8"), ("valid", "<u8"), ("out", "<u8"), ("result", "<u8"),
    ("reserved1", "<u8", (6,)),
])
GroupChoiceResult = np.dtype([
    ("status", "<u4"), ("selected", "<u4"), ("reserved0", "<u4", (2,)), ("max", "<i4", (8,)),
    ("reserved1", "<u4", (4,)), ("sum", "<u8", (8,)), ("unread", "<u8", (8,)),
])
Sqe = np.dtype([
    ("opcode", "<u1"), ("flags", "<u1"), ("cid", "<u2"), ("nsid", "<u4"), ("cdw2", "<u4"), ("cdw3", "<u4"),
    ("mptr", "<u8"), ("prp1", "<u8"), ("prp2", "<u8"), ("cdw10", "<u4"), ("cdw11", "<u4"), ("cdw12", "<u4"),
    ("cdw13", "<u4"), ("cdw14", "<u4"), ("cdw15", "<u4"),
])
Cqe = np.dtype([
    ("result", "<u8"), ("sq_head", "<u2"), ("sq_id", "<u2"), ("cid", "<u2"), ("status", "<u2"),
])
KvAppend = np.dtype([
    ("opcode", "<u1"), ("flags", "<u1"), ("cid", "<u2"), ("nsid", "<u4"), ("session", "<u4"), ("head", "<u1"),
    ("heads", "<u1"), ("layer", "<u2"), ("mptr", "<u8"), ("prp1", "<u8"), ("prp2", "<u8"), ("first_token", "<u4"),
    ("tokens", "<u2"), ("kind", "<u1"), ("type", "<u1"), ("row_bytes", "<u4"), ("sequence", "<u4"), ("crc32c", "<u4"),
    ("options", "<u4"),
])
SessionTrim = np.dtype([
    ("opcode", "<u1"), ("flags", "<u1"), ("cid", "<u2"), ("nsid", "<u4"), ("session", "<u4"), ("reserved0", "<u4"),
    ("mptr", "<u8"), ("prp1", "<u8"), ("prp2", "<u8"), ("from_token", "<u4"), ("reserved1", "<u4", (5,)),
])
SessionFork = np.dtype([
    ("opcode", "<u1"), ("flags", "<u1"), ("cid", "<u2"), ("nsid", "<u4"), ("session", "<u4"), ("reserved0", "<u4"),
    ("mptr", "<u8"), ("prp1", "<u8"), ("prp2", "<u8"), ("target", "<u4"), ("tokens", "<u4"), ("reserved1", "<u4", (4,)),
])
AttnSubmit = np.dtype([
    ("opcode", "<u1"), ("flags", "<u1"), ("cid", "<u2"), ("nsid", "<u4"), ("session", "<u4"), ("head", "<u1"),
    ("heads", "<u1"), ("layer", "<u2"), ("mptr", "<u8"), ("prp1", "<u8"), ("prp2", "<u8"), ("tokens", "<u4"),
    ("mode", "<u1"), ("group", "<u1"), ("has_valid", "<u1"), ("reserved0", "<u1"), ("r", "<u2"), ("k_top", "<u2"),
    ("local", "<u2"), ("inline_tokens", "<u2"), ("crc32c", "<u4"), ("scale_log2e", "<u4"),
])
AttnFetch = np.dtype([
    ("opcode", "<u1"), ("flags", "<u1"), ("cid", "<u2"), ("nsid", "<u4"), ("reserved0", "<u4", (2,)), ("mptr", "<u8"),
    ("prp1", "<u8"), ("prp2", "<u8"), ("ticket", "<u4"), ("data_bytes", "<u4"), ("reserved1", "<u4", (4,)),
])
