"""The rows of the command set, for checks of drives.

Generated from abi/commands.toml, abi/abi.toml and abi/nvme.toml by abi/generate.py; do not edit.
"""

# fmt: off
from typing import NamedTuple


class Row(NamedTuple):
    """`namespace` 0: admin. `direction`: none, to_controller, to_host. `statuses` are beside GENERAL."""

    opcode: int
    namespace: int
    direction: str
    statuses: tuple[str, ...]


STATUSES = {
    "INVALID_OPCODE": 0x001, "INVALID_NAMESPACE": 0x00b, "INVALID_FIELD": 0x002, "DATA_LENGTH": 0x00f,
    "INTERNAL_ERROR": 0x006, "NAMESPACE_WRITE_PROTECTED": 0x020, "ABORTED": 0x007, "DATA_TRANSFER": 0x004,
    "CRC_MISMATCH": 0x701, "OUT_OF_SEQUENCE": 0x702, "UNKNOWN_SESSION": 0x703, "TOKEN_GAP": 0x704,
    "ROW_MISMATCH": 0x706, "VALUE_NOT_FINITE": 0x709, "CAPACITY_EXCEEDED": 0x081, "TOKENS_MISSING": 0x705,
    "UNRECOVERED_READ": 0x281, "SESSION_EXISTS": 0x70c, "TICKETS_EXHAUSTED": 0x708, "PROGRAM_NOT_ACTIVATED": 0x198,
    "UNKNOWN_TICKET": 0x707, "NO_VALID_TOKEN": 0x70a, "JOB_REFUSED": 0x70b, "INVALID_KEY_SIZE": 0x086,
    "KEY_DOES_NOT_EXIST": 0x087, "INVALID_VALUE_SIZE": 0x085, "LBA_OUT_OF_RANGE": 0x080, "COMPARE_FAILURE": 0x285,
    "COMMAND_SIZE_LIMIT": 0x183, "KEY_EXISTS": 0x089, "COMMAND_SEQUENCE": 0x00c, "UNRECOVERED_ERROR": 0x088,
    "INVALID_PROGRAM_INDEX": 0x18f, "INVALID_MEMORY_RANGE_SET_ID": 0x18d, "INVALID_MEMORY_RANGE_SET": 0x18c,
    "BAD_COMMAND_SET": 0x12c, "BAD_LOG_PAGE": 0x109, "FEATURE_NOT_NAMESPACE_SPECIFIC": 0x10f,
    "FEATURE_NOT_SAVEABLE": 0x10d, "FEATURE_NOT_CHANGEABLE": 0x10e, "ASYNC_EVENT_LIMIT": 0x105, "BAD_QUEUE_ID": 0x101,
    "BAD_QUEUE_SIZE": 0x102, "BAD_COMPLETION_QUEUE": 0x100, "BAD_QUEUE_DELETION": 0x10c,
    "PROGRAM_NOT_DOWNLOADABLE": 0x19a, "MEMORY_RANGES_EXCEEDED": 0x191, "MEMORY_RANGE_SETS_EXCEEDED": 0x192,
    "INVALID_MEMORY_NAMESPACE": 0x18b, "BAD_FORMAT": 0x10a, "SANITIZE_FAILED": 0x01c,
}
GENERAL = (
    "INVALID_OPCODE", "INVALID_NAMESPACE", "INVALID_FIELD", "DATA_LENGTH", "INTERNAL_ERROR",
    "NAMESPACE_WRITE_PROTECTED", "ABORTED", "DATA_TRANSFER",
)
COMMANDS = {
    "KV_APPEND": Row(0x81, 1, "to_controller", (
        "INVALID_FIELD", "CRC_MISMATCH", "OUT_OF_SEQUENCE", "UNKNOWN_SESSION", "TOKEN_GAP", "ROW_MISMATCH",
        "VALUE_NOT_FINITE", "CAPACITY_EXCEEDED",
    )),
    "KV_READ": Row(0x82, 1, "to_host", (
        "INVALID_FIELD", "UNKNOWN_SESSION", "TOKENS_MISSING", "ROW_MISMATCH", "UNRECOVERED_READ",
    )),
    "SESSION_TRIM": Row(0x84, 1, "none", (
        "INVALID_FIELD", "UNKNOWN_SESSION", "UNRECOVERED_READ",
    )),
    "SESSION_ERASE": Row(0x8c, 1, "none", (
        "INVALID_FIELD", "UNKNOWN_SESSION", "UNRECOVERED_READ", "INTERNAL_ERROR",
    )),
    "SESSION_REMOVE": Row(0x90, 1, "none", (
        "INVALID_FIELD", "UNKNOWN_SESSION", "TOKEN_GAP", "TOKENS_MISSING", "UNRECOVERED_READ",
    )),
    "SESSION_FORK": Row(0x88, 1, "none", (
        "INVALID_FIELD", "UNKNOWN_SESSION", "SESSION_EXISTS", "UNRECOVERED_READ", "CAPACITY_EXCEEDED",
    )),
    "ATTN_SUBMIT": Row(0x85, 3, "to_controller", (
        "INVALID_FIELD", "UNKNOWN_SESSION", "TOKENS_MISSING", "ROW_MISMATCH", "CRC_MISMATCH", "TICKETS_EXHAUSTED",
        "PROGRAM_NOT_ACTIVATED", "INTERNAL_ERROR",
    )),
    "ATTN_SUBMIT_ROWS": Row(0x91, 3, "to_controller", (
        "INVALID_FIELD", "CRC_MISMATCH", "TICKETS_EXHAUSTED", "INTERNAL_ERROR",
    )),
    "ATTN_FETCH": Row(0x86, 3, "to_host", (
        "INVALID_FIELD", "UNKNOWN_TICKET", "DATA_LENGTH", "VALUE_NOT_FINITE", "NO_VALID_TOKEN", "JOB_REFUSED",
        "UNRECOVERED_READ",
    )),
    "FFN_SUBMIT": Row(0x8d, 3, "to_controller", (
        "INVALID_FIELD", "INVALID_KEY_SIZE", "KEY_DOES_NOT_EXIST", "INVALID_VALUE_SIZE", "CRC_MISMATCH",
        "TICKETS_EXHAUSTED", "PROGRAM_NOT_ACTIVATED",
    )),
    "FLUSH": Row(0x00, 1, "none", (
        "INTERNAL_ERROR",
    )),
    "READ": Row(0x02, 1, "to_host", (
        "LBA_OUT_OF_RANGE", "UNRECOVERED_READ",
    )),
    "WRITE": Row(0x01, 1, "to_controller", (
        "LBA_OUT_OF_RANGE", "CAPACITY_EXCEEDED",
    )),
    "WRITE_ZEROES": Row(0x08, 1, "none", (
        "LBA_OUT_OF_RANGE",
    )),
    "DATASET_MANAGEMENT": Row(0x09, 1, "to_controller", (
        "LBA_OUT_OF_RANGE",
    )),
    "COMPARE": Row(0x05, 1, "to_controller", (
        "COMPARE_FAILURE", "LBA_OUT_OF_RANGE", "UNRECOVERED_READ",
    )),
    "VERIFY": Row(0x0c, 1, "none", (
        "LBA_OUT_OF_RANGE", "UNRECOVERED_READ",
    )),
    "COPY": Row(0x19, 1, "to_controller", (
        "INVALID_FIELD", "COMMAND_SIZE_LIMIT", "LBA_OUT_OF_RANGE", "UNRECOVERED_READ", "CAPACITY_EXCEEDED",
    )),
    "STORE": Row(0x01, 4, "to_controller", (
        "INVALID_FIELD", "INVALID_KEY_SIZE", "INVALID_VALUE_SIZE", "KEY_DOES_NOT_EXIST", "KEY_EXISTS",
        "COMMAND_SEQUENCE", "CAPACITY_EXCEEDED",
    )),
    "RETRIEVE": Row(0x02, 4, "to_host", (
        "INVALID_FIELD", "INVALID_KEY_SIZE", "KEY_DOES_NOT_EXIST", "UNRECOVERED_ERROR",
    )),
    "LIST": Row(0x06, 4, "to_host", (
        "INVALID_FIELD",
    )),
    "DELETE": Row(0x10, 4, "none", (
        "INVALID_FIELD", "INVALID_KEY_SIZE", "KEY_DOES_NOT_EXIST",
    )),
    "EXIST": Row(0x14, 4, "none", (
        "INVALID_FIELD", "INVALID_KEY_SIZE", "KEY_DOES_NOT_EXIST",
    )),
    "FLUSH_VALUES": Row(0x00, 4, "none", (
        "INTERNAL_ERROR",
    )),
    "MEMORY_READ": Row(0x02, 2, "to_host", (
        "INVALID_FIELD", "LBA_OUT_OF_RANGE",
    )),
    "MEMORY_WRITE": Row(0x05, 2, "to_controller", (
        "INVALID_FIELD", "LBA_OUT_OF_RANGE",
    )),
    "MEMORY_FILL": Row(0x04, 2, "none", (
        "INVALID_FIELD", "LBA_OUT_OF_RANGE",
    )),
    "EXECUTE_PROGRAM": Row(0x01, 3, "to_controller", (
        "INVALID_FIELD", "INVALID_PROGRAM_INDEX", "PROGRAM_NOT_ACTIVATED", "INVALID_MEMORY_RANGE_SET_ID",
        "INVALID_MEMORY_RANGE_SET", "JOB_REFUSED",
    )),
    "IDENTIFY": Row(0x06, 0, "to_host", (
        "INVALID_FIELD", "INVALID_NAMESPACE", "BAD_COMMAND_SET",
    )),
    "GET_LOG_PAGE": Row(0x02, 0, "to_host", (
        "BAD_LOG_PAGE", "INVALID_FIELD", "INVALID_NAMESPACE", "BAD_COMMAND_SET",
    )),
    "GET_FEATURES": Row(0x0a, 0, "to_host", (
        "INVALID_FIELD", "INVALID_NAMESPACE",
    )),
    "SET_FEATURES": Row(0x09, 0, "to_controller", (
        "INVALID_FIELD", "INVALID_NAMESPACE", "FEATURE_NOT_NAMESPACE_SPECIFIC", "FEATURE_NOT_SAVEABLE",
        "FEATURE_NOT_CHANGEABLE",
    )),
    "ABORT": Row(0x08, 0, "none", ()),
    "ASYNC_EVENT_REQUEST": Row(0x0c, 0, "none", (
        "ASYNC_EVENT_LIMIT",
    )),
    "KEEP_ALIVE": Row(0x18, 0, "none", ()),
    "CREATE_CQ": Row(0x05, 0, "none", (
        "BAD_QUEUE_ID", "BAD_QUEUE_SIZE", "INVALID_FIELD",
    )),
    "CREATE_SQ": Row(0x01, 0, "none", (
        "BAD_QUEUE_ID", "BAD_QUEUE_SIZE", "BAD_COMPLETION_QUEUE", "INVALID_FIELD",
    )),
    "DELETE_CQ": Row(0x04, 0, "none", (
        "BAD_QUEUE_ID", "BAD_QUEUE_DELETION",
    )),
    "DELETE_SQ": Row(0x00, 0, "none", (
        "BAD_QUEUE_ID",
    )),
    "LOAD_PROGRAM": Row(0x85, 0, "none", (
        "PROGRAM_NOT_DOWNLOADABLE", "INVALID_PROGRAM_INDEX",
    )),
    "PROGRAM_ACTIVATION": Row(0x88, 0, "none", (
        "INVALID_FIELD", "INVALID_PROGRAM_INDEX",
    )),
    "MEMORY_RANGE_SET": Row(0x89, 0, "to_controller", (
        "INVALID_FIELD", "MEMORY_RANGES_EXCEEDED", "MEMORY_RANGE_SETS_EXCEEDED", "INVALID_MEMORY_NAMESPACE",
        "INVALID_MEMORY_RANGE_SET", "INVALID_MEMORY_RANGE_SET_ID",
    )),
    "FORMAT_NVM": Row(0x80, 0, "none", (
        "INVALID_NAMESPACE", "BAD_FORMAT", "INVALID_FIELD", "INTERNAL_ERROR",
    )),
    "SANITIZE": Row(0x84, 0, "none", (
        "INVALID_FIELD", "SANITIZE_FAILED",
    )),
}
