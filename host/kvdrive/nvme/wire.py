"""Standard NVMe numbers and layouts.

Generated from abi/nvme.toml by abi/generate.py; do not edit.
"""

# fmt: off
from enum import IntEnum

import numpy as np

VERSION_2_1 = 131328
LBA_BYTES = 4096
IDENTIFY_BYTES = 4096
MAX_NSID = 4
NSID_MEMORY = 2
NSID_VALUES = 4
MAX_KEY_BYTES = 16
MAX_VALUE_BYTES = 1073741824
MAX_UPLOADS = 64
MAX_FFN_HIDDEN = 8192
MAX_FFN_TOKENS = 64
MAX_ATTN_ROWS = 64
FFN_LISTED = 128
NSID_ALL = 4294967295
MEMORY_ALIGNMENT = 4
MAX_MEMORY_RANGES = 1
MAX_MEMORY_RANGE_SETS = 16
ASYNC_EVENT_LIMIT = 4
ABORT_LIMIT = 4
ANA_GROUP = 1
MAX_COPY_RANGES = 128
MAX_COPY_RANGE_BLOCKS = 256
MAX_COPY_BLOCKS = 4096
ROOM_KELVIN = 298
WARNING_KELVIN = 343
CRITICAL_KELVIN = 353
RING_MAGIC = 1735289202
RING_VERSION = 1
RING_REGISTERS = 4096
RING_HEAP = 12288


class Property(IntEnum):
    CAP = 0x0
    VS = 0x8
    INTMS = 0xc
    INTMC = 0x10
    CC = 0x14
    CSTS = 0x1c
    NSSR = 0x20
    AQA = 0x24
    ASQ = 0x28
    ACQ = 0x30
    DOORBELLS = 0x1000


class AdminOpcode(IntEnum):
    DELETE_SQ = 0x0
    CREATE_SQ = 0x1
    GET_LOG_PAGE = 0x2
    DELETE_CQ = 0x4
    CREATE_CQ = 0x5
    IDENTIFY = 0x6
    ABORT = 0x8
    SET_FEATURES = 0x9
    GET_FEATURES = 0xa
    ASYNC_EVENT_REQUEST = 0xc
    KEEP_ALIVE = 0x18
    FABRICS = 0x7f
    FORMAT_NVM = 0x80
    SANITIZE = 0x84
    LOAD_PROGRAM = 0x85
    PROGRAM_ACTIVATION = 0x88
    MEMORY_RANGE_SET = 0x89


class NvmOpcode(IntEnum):
    NVM_FLUSH = 0x0
    NVM_WRITE = 0x1
    NVM_READ = 0x2
    NVM_COMPARE = 0x5
    NVM_WRITE_ZEROES = 0x8
    NVM_DATASET_MANAGEMENT = 0x9
    NVM_VERIFY = 0xc
    NVM_COPY = 0x19


class RowFormat(IntEnum):
    BINARY16 = 0x0
    INT8 = 0x1
    INT4 = 0x2
    FP8 = 0x3


class ValueOpcode(IntEnum):
    VALUE_STORE = 0x1
    VALUE_RETRIEVE = 0x2
    VALUE_LIST = 0x6
    VALUE_DELETE = 0x10
    VALUE_EXIST = 0x14


class StoreOption(IntEnum):
    STORE_MUST_EXIST = 0x1
    STORE_MUST_NOT_EXIST = 0x2
    STORE_UNCOMPRESSED = 0x4
    STORE_FUA = 0x40
    STORE_PART = 0x80


class RetrieveOption(IntEnum):
    RETRIEVE_RAW = 0x1
    RETRIEVE_URGENT = 0x20
    RETRIEVE_AHEAD = 0x40
    RETRIEVE_OFFSET = 0x80


class MemoryOpcode(IntEnum):
    MEMORY_READ = 0x2
    MEMORY_FILL = 0x4
    MEMORY_WRITE = 0x5


class ProgramOpcode(IntEnum):
    EXECUTE_PROGRAM = 0x1


class FfnLayout(IntEnum):
    FFN_DOWN = 0x1
    FFN_UP_DOWN = 0x2
    FFN_GATE_UP_DOWN = 0x3
    FFN_EXPERT = 0x4


class FfnActivation(IntEnum):
    FFN_GIVEN = 0x0
    FFN_RELU = 0x1
    FFN_SILU = 0x2


class CommandSet(IntEnum):
    CSI_NVM = 0x0
    CSI_KEY_VALUE = 0x1
    CSI_MEMORY = 0x3
    CSI_PROGRAMS = 0x4


class Program(IntEnum):
    PROGRAM_DENSE = 0x0
    PROGRAM_SPARF = 0x1
    PROGRAM_PARTIAL = 0x2
    PROGRAM_GROUPS = 0x3
    PROGRAM_FFN = 0x4


class Cns(IntEnum):
    CNS_NAMESPACE = 0x0
    CNS_CONTROLLER = 0x1
    CNS_ACTIVE_NAMESPACES = 0x2
    CNS_NAMESPACE_DESCRIPTORS = 0x3
    CNS_CSI_NAMESPACE = 0x5
    CNS_CSI_CONTROLLER = 0x6
    CNS_CSI_ACTIVE_NAMESPACES = 0x7
    CNS_INDEPENDENT_NAMESPACE = 0x8
    CNS_COMMAND_SETS = 0x1c


class LogPage(IntEnum):
    LOG_SUPPORTED_PAGES = 0x0
    LOG_ERRORS = 0x1
    LOG_SMART = 0x2
    LOG_FIRMWARE = 0x3
    LOG_CHANGED_NAMESPACES = 0x4
    LOG_COMMAND_EFFECTS = 0x5
    LOG_ANA = 0xc
    LOG_FEATURE_EFFECTS = 0x12
    LOG_SANITIZE_STATUS = 0x81
    LOG_STATISTICS = 0xc0
    LOG_PROGRAMS = 0xc1
    LOG_SESSIONS = 0xc2


class Feature(IntEnum):
    FEATURE_ARBITRATION = 0x1
    FEATURE_POWER = 0x2
    FEATURE_TEMPERATURE_THRESHOLD = 0x4
    FEATURE_ERROR_RECOVERY = 0x5
    FEATURE_WRITE_CACHE = 0x6
    FEATURE_QUEUES = 0x7
    FEATURE_INTERRUPT_COALESCING = 0x8
    FEATURE_INTERRUPT_VECTOR = 0x9
    FEATURE_WRITE_ATOMICITY = 0xa
    FEATURE_ASYNC_EVENTS = 0xb
    FEATURE_TIMESTAMP = 0xe
    FEATURE_KEEP_ALIVE = 0xf
    FEATURE_HOST_BEHAVIOR = 0x16
    FEATURE_COMMAND_SET_PROFILE = 0x19
    FEATURE_KEY_VALUE = 0x20
    FEATURE_HOST_ID = 0x81


class StatusCode(IntEnum):
    SC_INVALID_COMMAND_ID = 0x3
    SC_DATA_TRANSFER = 0x4
    SC_ABORTED = 0x7
    SC_ABORTED_QUEUE_DELETED = 0x8
    SC_COMMAND_SEQUENCE = 0xc
    SC_BAD_SGL_SEGMENT = 0xd
    SC_BAD_SGL_COUNT = 0xe
    SC_BAD_SGL_TYPE = 0x11
    SC_SANITIZE_FAILED = 0x1c
    SC_NAMESPACE_WRITE_PROTECTED = 0x20
    SC_BAD_PRP_OFFSET = 0x13
    SC_LBA_OUT_OF_RANGE = 0x80
    SC_INVALID_VALUE_SIZE = 0x85
    SC_INVALID_KEY_SIZE = 0x86
    SC_KEY_DOES_NOT_EXIST = 0x87
    SC_UNRECOVERED_ERROR = 0x88
    SC_KEY_EXISTS = 0x89
    SC_BAD_COMPLETION_QUEUE = 0x100
    SC_BAD_QUEUE_ID = 0x101
    SC_BAD_QUEUE_SIZE = 0x102
    SC_ABORT_LIMIT = 0x103
    SC_ASYNC_EVENT_LIMIT = 0x105
    SC_BAD_LOG_PAGE = 0x109
    SC_BAD_FORMAT = 0x10a
    SC_BAD_QUEUE_DELETION = 0x10c
    SC_FEATURE_NOT_SAVEABLE = 0x10d
    SC_FEATURE_NOT_CHANGEABLE = 0x10e
    SC_FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10f
    SC_COMMAND_SIZE_LIMIT = 0x183
    SC_COMPARE_FAILURE = 0x285
    SC_COMMAND_SET_REJECTED = 0x12b
    SC_BAD_COMMAND_SET = 0x12c
    SC_INVALID_MEMORY_NAMESPACE = 0x18b
    SC_INVALID_MEMORY_RANGE_SET = 0x18c
    SC_INVALID_MEMORY_RANGE_SET_ID = 0x18d
    SC_INVALID_PROGRAM_INDEX = 0x18f
    SC_MEMORY_RANGES_EXCEEDED = 0x191
    SC_MEMORY_RANGE_SETS_EXCEEDED = 0x192
    SC_PROGRAM_NOT_ACTIVATED = 0x198
    SC_PROGRAM_NOT_DOWNLOADABLE = 0x19a


KvRead = np.dtype([
    ("opcode", "<u1"), ("flags", "<u1"), ("cid", "<u2"), ("nsid", "<u4"), ("session", "<u4"), ("head", "<u1"),
    ("heads", "<u1"), ("layer", "<u2"), ("mptr", "<u8"), ("prp1", "<u8"), ("prp2", "<u8"), ("first_token", "<u4"),
    ("tokens", "<u4"), ("row_bytes", "<u4"), ("kind", "<u1"), ("reserved0", "<u1", (3,)), ("reserved1", "<u4", (2,)),
])
SessionRemove = np.dtype([
    ("opcode", "<u1"), ("flags", "<u1"), ("cid", "<u2"), ("nsid", "<u4"), ("session", "<u4"), ("reserved0", "<u4"),
    ("mptr", "<u8"), ("prp1", "<u8"), ("prp2", "<u8"), ("first_token", "<u4"), ("tokens", "<u4"), ("before", "<u4"),
    ("layers", "<u4"), ("reserved1", "<u4", (2,)),
])
ValueCommand = np.dtype([
    ("opcode", "<u1"), ("flags", "<u1"), ("cid", "<u2"), ("nsid", "<u4"), ("key_low", "<u1", (8,)), ("mptr", "<u8"),
    ("prp1", "<u8"), ("prp2", "<u8"), ("size", "<u4"), ("key_bytes", "<u1"), ("options", "<u1"), ("upload", "<u2"),
    ("offset", "<u4"), ("total", "<u4"), ("key_high", "<u1", (8,)),
])
FfnSubmit = np.dtype([
    ("opcode", "<u1"), ("flags", "<u1"), ("cid", "<u2"), ("nsid", "<u4"), ("key_low", "<u1", (8,)), ("mptr", "<u8"),
    ("prp1", "<u8"), ("prp2", "<u8"), ("offset", "<u4"), ("hidden", "<u2"), ("neurons", "<u2"), ("layout", "<u1"),
    ("activation", "<u1"), ("tokens", "<u1"), ("key_bytes", "<u1"), ("crc32c", "<u4"), ("key_high", "<u1", (8,)),
])
AttnRows = np.dtype([
    ("opcode", "<u1"), ("flags", "<u1"), ("cid", "<u2"), ("nsid", "<u4"), ("reserved0", "<u4", (2,)), ("mptr", "<u8"),
    ("prp1", "<u8"), ("prp2", "<u8"), ("rows", "<u4"), ("data_bytes", "<u4"), ("crc32c", "<u4"),
    ("reserved1", "<u4", (3,)),
])
AttnRow = np.dtype([
    ("reserved0", "<u4", (2,)), ("session", "<u4"), ("head", "<u1"), ("heads", "<u1"), ("layer", "<u2"),
    ("data_bytes", "<u4"), ("reserved1", "<u4", (5,)), ("tokens", "<u4"), ("mode", "<u1"), ("group", "<u1"),
    ("has_valid", "<u1"), ("reserved2", "<u1"), ("r", "<u2"), ("k_top", "<u2"), ("local", "<u2"),
    ("inline_tokens", "<u2"), ("reserved3", "<u4"), ("scale_log2e", "<u4"),
])
AttnRowResult = np.dtype([
    ("status", "<u4"), ("engine_status", "<u4"), ("data_bytes", "<u4"), ("reserved", "<u4"),
])
MemoryRange = np.dtype([
    ("nsid", "<u4"), ("length", "<u4"), ("start", "<u8"), ("reserved", "<u8", (2,)),
])
DatasetRange = np.dtype([
    ("attributes", "<u4"), ("blocks", "<u4"), ("first_block", "<u8"),
])
CopyRange = np.dtype([
    ("reserved0", "<u8"), ("first_block", "<u8"), ("blocks", "<u2"), ("reserved1", "<u2", (3,)), ("reserved2", "<u8"),
])
SglDescriptor = np.dtype([
    ("address", "<u8"), ("length", "<u4"), ("reserved", "<u1", (3,)), ("kind", "<u1"),
])
RingSegment = np.dtype([
    ("magic", "<u4"), ("version", "<u4"), ("bytes", "<u8"), ("device_event", "<u4"), ("device_sleeps", "<u4"),
    ("host_event", "<u4"), ("host_waiters", "<u4"), ("reserved", "<u8", (4,)),
])
IdentifyController = np.dtype([
    ("vid", "<u2"), ("ssvid", "<u2"), ("sn", "<u1", (20,)), ("mn", "<u1", (40,)), ("fr", "<u1", (8,)), ("rab", "<u1"),
    ("ieee", "<u1", (3,)), ("cmic", "<u1"), ("mdts", "<u1"), ("cntlid", "<u2"), ("ver", "<u4"), ("rtd3r", "<u4"),
    ("rtd3e", "<u4"), ("oaes", "<u4"), ("ctratt", "<u4"), ("rrls", "<u2"), ("bpcap", "<u1"), ("reserved0", "<u1"),
    ("nssl", "<u4"), ("reserved1", "<u1", (2,)), ("plsi", "<u1"), ("cntrltype", "<u1"), ("fguid", "<u1", (16,)),
    ("crdt", "<u2", (3,)), ("crcap", "<u1"), ("reserved2", "<u1", (118,)), ("nvmsr", "<u1"), ("vwci", "<u1"),
    ("mec", "<u1"), ("oacs", "<u2"), ("acl", "<u1"), ("aerl", "<u1"), ("frmw", "<u1"), ("lpa", "<u1"), ("elpe", "<u1"),
    ("npss", "<u1"), ("avscc", "<u1"), ("apsta", "<u1"), ("wctemp", "<u2"), ("cctemp", "<u2"), ("mtfa", "<u2"),
    ("hmpre", "<u4"), ("hmmin", "<u4"), ("tnvmcap", "<u8", (2,)), ("unvmcap", "<u8", (2,)), ("rpmbs", "<u4"),
    ("edstt", "<u2"), ("dsto", "<u1"), ("fwug", "<u1"), ("kas", "<u2"), ("hctma", "<u2"), ("mntmt", "<u2"),
    ("mxtmt", "<u2"), ("sanicap", "<u4"), ("hmminds", "<u4"), ("hmmaxd", "<u2"), ("nsetidmax", "<u2"),
    ("endgidmax", "<u2"), ("anatt", "<u1"), ("anacap", "<u1"), ("anagrpmax", "<u4"), ("nanagrpid", "<u4"),
    ("pels", "<u4"), ("domain_id", "<u2"), ("kpioc", "<u1"), ("reserved3", "<u1"), ("mptfawr", "<u2"),
    ("reserved4", "<u1", (6,)), ("megcap", "<u8", (2,)), ("tmpthha", "<u1"), ("reserved5", "<u1", (127,)),
    ("sqes", "<u1"), ("cqes", "<u1"), ("maxcmd", "<u2"), ("nn", "<u4"), ("oncs", "<u2"), ("fuses", "<u2"),
    ("fna", "<u1"), ("vwc", "<u1"), ("awun", "<u2"), ("awupf", "<u2"), ("icsvscc", "<u1"), ("nwpc", "<u1"),
    ("acwu", "<u2"), ("cdfs", "<u2"), ("sgls", "<u4"), ("mnan", "<u4"), ("maxdna", "<u8", (2,)), ("maxcna", "<u4"),
    ("oaqd", "<u4"), ("rhiri", "<u1"), ("hirt", "<u1"), ("cmmrtd", "<u2"), ("nmmrtd", "<u2"), ("minmrtg", "<u1"),
    ("maxmrtg", "<u1"), ("trattr", "<u1"), ("reserved6", "<u1", (191,)), ("subnqn", "<u1", (256,)),
    ("reserved7", "<u1", (768,)), ("ioccsz", "<u4"), ("iorcsz", "<u4"), ("icdoff", "<u2"), ("fcatt", "<u1"),
    ("msdbd", "<u1"), ("ofcs", "<u2"), ("dctype", "<u1"), ("reserved8", "<u1", (241,)), ("psd", "<u1", (1024,)),
    ("engine", "<u1", (16,)), ("preset", "<u1", (32,)), ("engine_mhz", "<u4"), ("abi_version", "<u4"),
    ("slm_bytes", "<u8"), ("kv_capacity_bytes", "<u8"), ("vendor_reserved", "<u1", (952,)),
])
LbaFormat = np.dtype([
    ("metadata_bytes", "<u2"), ("data_bits", "<u1"), ("performance", "<u1"),
])
IdentifyNamespace = np.dtype([
    ("nsze", "<u8"), ("ncap", "<u8"), ("nuse", "<u8"), ("nsfeat", "<u1"), ("nlbaf", "<u1"), ("flbas", "<u1"),
    ("mc", "<u1"), ("dpc", "<u1"), ("dps", "<u1"), ("nmic", "<u1"), ("rescap", "<u1"), ("fpi", "<u1"),
    ("dlfeat", "<u1"), ("nawun", "<u2"), ("nawupf", "<u2"), ("nacwu", "<u2"), ("nabsn", "<u2"), ("nabo", "<u2"),
    ("nabspf", "<u2"), ("noiob", "<u2"), ("nvmcap", "<u8", (2,)), ("npwg", "<u2"), ("npwa", "<u2"), ("npdg", "<u2"),
    ("npda", "<u2"), ("nows", "<u2"), ("mssrl", "<u2"), ("mcl", "<u4"), ("msrc", "<u1"), ("kpios", "<u1"),
    ("nulbaf", "<u1"), ("reserved0", "<u1"), ("kpiodaag", "<u4"), ("reserved1", "<u1", (4,)), ("anagrpid", "<u4"),
    ("reserved2", "<u1", (3,)), ("nsattr", "<u1"), ("nvmsetid", "<u2"), ("endgid", "<u2"), ("nguid", "<u1", (16,)),
    ("eui64", "<u1", (8,)), ("lbaf", "<u4", (64,)), ("reserved3", "<u1", (3712,)),
])
IndependentNamespace = np.dtype([
    ("nsfeat", "<u1"), ("nmic", "<u1"), ("rescap", "<u1"), ("fpi", "<u1"), ("anagrpid", "<u4"), ("nsattr", "<u1"),
    ("reserved0", "<u1"), ("nvmsetid", "<u2"), ("endgid", "<u2"), ("nstat", "<u1"), ("kpios", "<u1"), ("maxkt", "<u2"),
    ("reserved1", "<u2"), ("rgrpid", "<u4"), ("reserved2", "<u1", (4072,)),
])
MemoryNamespace = np.dtype([
    ("nsze", "<u8"), ("ncap", "<u8"), ("granularity", "<u4"), ("reserved", "<u1", (4076,)),
])
ProgramsNamespace = np.dtype([
    ("programs", "<u2"), ("active_programs", "<u2"), ("max_memory_range_sets", "<u2"), ("max_memory_ranges", "<u2"),
    ("max_program_bytes", "<u4"), ("reserved", "<u1", (4084,)),
])
KeyValueFormat = np.dtype([
    ("key_bytes", "<u2"), ("reserved0", "<u1"), ("performance", "<u1"), ("value_bytes", "<u4"), ("keys", "<u4"),
    ("reserved1", "<u4"),
])
KeyValueNamespace = np.dtype([
    ("nsze", "<u8"), ("reserved0", "<u8"), ("nuse", "<u8"), ("nsfeat", "<u1"), ("nkvf", "<u1"), ("nmic", "<u1"),
    ("rescap", "<u1"), ("fpi", "<u1"), ("kvfc", "<u1"), ("reserved1", "<u1", (2,)), ("novg", "<u4"),
    ("anagrpid", "<u4"), ("reserved2", "<u1", (3,)), ("nsattr", "<u1"), ("nvmsetid", "<u2"), ("endgid", "<u2"),
    ("nguid", "<u1", (16,)), ("eui64", "<u1", (8,)), ("kvf", "<u4", (64,)), ("reserved3", "<u1", (3768,)),
])
ProgramDescriptor = np.dtype([
    ("occupied", "<u1"), ("active", "<u1"), ("kind", "<u1"), ("reserved0", "<u1"), ("index", "<u2"),
    ("reserved1", "<u2"), ("identifier", "<u8"), ("name", "<u1", (16,)), ("reserved2", "<u1", (32,)),
])
ErrorEntry = np.dtype([
    ("count", "<u8"), ("sq_id", "<u2"), ("cid", "<u2"), ("status", "<u2"), ("location", "<u2"), ("lba", "<u8"),
    ("nsid", "<u4"), ("vendor", "<u1"), ("trtype", "<u1"), ("csi", "<u1"), ("opcode", "<u1"), ("specific", "<u8"),
    ("reserved", "<u1", (24,)),
])
SmartLog = np.dtype([
    ("critical_warning", "<u1"), ("temperature", "<u1", (2,)), ("spare_percent", "<u1"), ("spare_threshold", "<u1"),
    ("used_percent", "<u1"), ("endurance_warning", "<u1"), ("reserved0", "<u1", (25,)),
    ("data_units_read", "<u8", (2,)), ("data_units_written", "<u8", (2,)), ("host_reads", "<u8", (2,)),
    ("host_writes", "<u8", (2,)), ("busy_minutes", "<u8", (2,)), ("power_cycles", "<u8", (2,)),
    ("power_on_hours", "<u8", (2,)), ("unsafe_shutdowns", "<u8", (2,)), ("media_errors", "<u8", (2,)),
    ("error_entries", "<u8", (2,)), ("reserved1", "<u1", (320,)),
])
AnaLog = np.dtype([
    ("changes", "<u8"), ("groups", "<u2"), ("reserved0", "<u2", (3,)), ("group", "<u4"), ("namespaces", "<u4"),
    ("group_changes", "<u8"), ("state", "<u1"), ("reserved1", "<u1", (15,)), ("nsid", "<u4", (4,)),
])
FirmwareLog = np.dtype([
    ("active", "<u1"), ("reserved0", "<u1", (7,)), ("slots", "<u8", (7,)), ("reserved1", "<u1", (448,)),
])
SanitizeStatus = np.dtype([
    ("sprog", "<u2"), ("sstat", "<u2"), ("scdw10", "<u4"), ("eto", "<u4"), ("etbe", "<u4"), ("etce", "<u4"),
    ("etond", "<u4"), ("etbend", "<u4"), ("etcend", "<u4"), ("etpvds", "<u4"), ("ssi", "<u1"),
    ("reserved", "<u1", (475,)),
])
DriveStatistics = np.dtype([
    ("version", "<u4"), ("reserved0", "<u4"), ("commands", "<u8"), ("failed_commands", "<u8"), ("host_bytes_in", "<u8"),
    ("host_bytes_out", "<u8"), ("pages_written", "<u8"), ("pages_read", "<u8"), ("staged_bytes_read", "<u8"),
    ("attention_jobs", "<u8"), ("device_ns", "<u8"), ("engine_cycles", "<u8"), ("memory_bytes", "<u8"),
    ("journal_bytes", "<u8"), ("file_writes", "<u8"), ("groups_live", "<u8"), ("groups_available", "<u8"),
    ("groups_queued", "<u8"), ("groups_moved", "<u8"), ("units_programmed", "<u8"), ("pages_sensed", "<u8"),
    ("lost_groups", "<u8"), ("filter_pages", "<u8"), ("filter_rows_kept", "<u8"), ("filter_rows_dropped", "<u8"),
    ("filter_bytes", "<u8"), ("staged_bytes", "<u8"), ("metadata_bytes", "<u8"), ("erases", "<u8"),
    ("least_erases", "<u8"), ("most_erases", "<u8"), ("bad_blocks", "<u8"), ("program_failures", "<u8"),
    ("erase_failures", "<u8"), ("channels", "<u8"), ("channel_bytes", "<u8"), ("channel_busy_ns", "<u8"),
    ("block_reads", "<u8"), ("block_writes", "<u8"), ("staged_budget", "<u8"), ("metadata_budget", "<u8"),
    ("session_groups", "<u8"), ("run_groups", "<u8"), ("groups_levelled", "<u8"), ("reads_retried", "<u8"),
    ("sensings_repeated", "<u8"), ("values", "<u8"), ("value_bytes", "<u8"), ("value_stores", "<u8"),
    ("value_retrieves", "<u8"), ("reserved1", "<u8", (15,)),
])
