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
    statuses: dict[str, int]


GENERAL = {
        "INVALID_OPCODE": 0x001,
        "INVALID_NAMESPACE": 0x00b,
        "INVALID_FIELD": 0x002,
        "DATA_LENGTH": 0x00f,
        "INTERNAL_ERROR": 0x006,
        "NAMESPACE_WRITE_PROTECTED": 0x020,
        "ABORTED": 0x007,
        "DATA_TRANSFER": 0x004,
    }

COMMANDS = {
    "KV_APPEND": Row(0x81, 1, "to_controller", {
        "INVALID_FIELD": 0x002,
        "CRC_MISMATCH": 0x701,
        "OUT_OF_SEQUENCE": 0x702,
        "UNKNOWN_SESSION": 0x703,
        "TOKEN_GAP": 0x704,
        "ROW_MISMATCH": 0x706,
        "VALUE_NOT_FINITE": 0x709,
        "CAPACITY_EXCEEDED": 0x081,
    }),
    "KV_READ": Row(0x82, 1, "to_host", {
        "INVALID_FIELD": 0x002,
        "UNKNOWN_SESSION": 0x703,
        "TOKENS_MISSING": 0x705,
        "ROW_MISMATCH": 0x706,
        "UNRECOVERED_READ": 0x281,
    }),
    "SESSION_TRIM": Row(0x84, 1, "none", {
        "INVALID_FIELD": 0x002,
        "UNKNOWN_SESSION": 0x703,
        "UNRECOVERED_READ": 0x281,
    }),
    "SESSION_ERASE": Row(0x8c, 1, "none", {
        "INVALID_FIELD": 0x002,
        "UNKNOWN_SESSION": 0x703,
        "UNRECOVERED_READ": 0x281,
        "INTERNAL_ERROR": 0x006,
    }),
    "SESSION_REMOVE": Row(0x90, 1, "none", {
        "INVALID_FIELD": 0x002,
        "UNKNOWN_SESSION": 0x703,
        "TOKEN_GAP": 0x704,
        "TOKENS_MISSING": 0x705,
        "UNRECOVERED_READ": 0x281,
    }),
    "SESSION_FORK": Row(0x88, 1, "none", {
        "INVALID_FIELD": 0x002,
        "UNKNOWN_SESSION": 0x703,
        "SESSION_EXISTS": 0x70c,
        "UNRECOVERED_READ": 0x281,
        "CAPACITY_EXCEEDED": 0x081,
    }),
    "ATTN_SUBMIT": Row(0x85, 3, "to_controller", {
        "INVALID_FIELD": 0x002,
        "UNKNOWN_SESSION": 0x703,
        "TOKENS_MISSING": 0x705,
        "ROW_MISMATCH": 0x706,
        "CRC_MISMATCH": 0x701,
        "TICKETS_EXHAUSTED": 0x708,
        "PROGRAM_NOT_ACTIVATED": 0x198,
        "INTERNAL_ERROR": 0x006,
    }),
    "ATTN_SUBMIT_ROWS": Row(0x91, 3, "to_controller", {
        "INVALID_FIELD": 0x002,
        "CRC_MISMATCH": 0x701,
        "TICKETS_EXHAUSTED": 0x708,
        "INTERNAL_ERROR": 0x006,
    }),
    "ATTN_FETCH": Row(0x86, 3, "to_host", {
        "INVALID_FIELD": 0x002,
        "UNKNOWN_TICKET": 0x707,
        "DATA_LENGTH": 0x00f,
        "VALUE_NOT_FINITE": 0x709,
        "NO_VALID_TOKEN": 0x70a,
        "JOB_REFUSED": 0x70b,
        "UNRECOVERED_READ": 0x281,
    }),
    "FFN_SUBMIT": Row(0x8d, 3, "to_controller", {
        "INVALID_FIELD": 0x002,
        "INVALID_KEY_SIZE": 0x086,
        "KEY_DOES_NOT_EXIST": 0x087,
        "INVALID_VALUE_SIZE": 0x085,
        "CRC_MISMATCH": 0x701,
        "TICKETS_EXHAUSTED": 0x708,
        "PROGRAM_NOT_ACTIVATED": 0x198,
    }),
    "FLUSH": Row(0x00, 1, "none", {
        "INTERNAL_ERROR": 0x006,
    }),
    "READ": Row(0x02, 1, "to_host", {
        "LBA_OUT_OF_RANGE": 0x080,
        "UNRECOVERED_READ": 0x281,
    }),
    "WRITE": Row(0x01, 1, "to_controller", {
        "LBA_OUT_OF_RANGE": 0x080,
        "CAPACITY_EXCEEDED": 0x081,
    }),
    "WRITE_ZEROES": Row(0x08, 1, "none", {
        "LBA_OUT_OF_RANGE": 0x080,
    }),
    "DATASET_MANAGEMENT": Row(0x09, 1, "to_controller", {
        "LBA_OUT_OF_RANGE": 0x080,
    }),
    "COMPARE": Row(0x05, 1, "to_controller", {
        "COMPARE_FAILURE": 0x285,
        "LBA_OUT_OF_RANGE": 0x080,
        "UNRECOVERED_READ": 0x281,
    }),
    "VERIFY": Row(0x0c, 1, "none", {
        "LBA_OUT_OF_RANGE": 0x080,
        "UNRECOVERED_READ": 0x281,
    }),
    "COPY": Row(0x19, 1, "to_controller", {
        "INVALID_FIELD": 0x002,
        "COMMAND_SIZE_LIMIT": 0x183,
        "LBA_OUT_OF_RANGE": 0x080,
        "UNRECOVERED_READ": 0x281,
        "CAPACITY_EXCEEDED": 0x081,
    }),
    "STORE": Row(0x01, 4, "to_controller", {
        "INVALID_FIELD": 0x002,
        "INVALID_KEY_SIZE": 0x086,
        "INVALID_VALUE_SIZE": 0x085,
        "KEY_DOES_NOT_EXIST": 0x087,
        "KEY_EXISTS": 0x089,
        "COMMAND_SEQUENCE": 0x00c,
        "CAPACITY_EXCEEDED": 0x081,
    }),
    "RETRIEVE": Row(0x02, 4, "to_host", {
        "INVALID_FIELD": 0x002,
        "INVALID_KEY_SIZE": 0x086,
        "KEY_DOES_NOT_EXIST": 0x087,
        "UNRECOVERED_ERROR": 0x088,
    }),
    "LIST": Row(0x06, 4, "to_host", {
        "INVALID_FIELD": 0x002,
    }),
    "DELETE": Row(0x10, 4, "none", {
        "INVALID_FIELD": 0x002,
        "INVALID_KEY_SIZE": 0x086,
        "KEY_DOES_NOT_EXIST": 0x087,
    }),
    "EXIST": Row(0x14, 4, "none", {
        "INVALID_FIELD": 0x002,
        "INVALID_KEY_SIZE": 0x086,
        "KEY_DOES_NOT_EXIST": 0x087,
    }),
    "FLUSH_VALUES": Row(0x00, 4, "none", {
        "INTERNAL_ERROR": 0x006,
    }),
    "MEMORY_READ": Row(0x02, 2, "to_host", {
        "INVALID_FIELD": 0x002,
        "LBA_OUT_OF_RANGE": 0x080,
    }),
    "MEMORY_WRITE": Row(0x05, 2, "to_controller", {
        "INVALID_FIELD": 0x002,
        "LBA_OUT_OF_RANGE": 0x080,
    }),
    "MEMORY_FILL": Row(0x04, 2, "none", {
        "INVALID_FIELD": 0x002,
        "LBA_OUT_OF_RANGE": 0x080,
    }),
    "EXECUTE_PROGRAM": Row(0x01, 3, "to_controller", {
        "INVALID_FIELD": 0x002,
        "INVALID_PROGRAM_INDEX": 0x18f,
        "PROGRAM_NOT_ACTIVATED": 0x198,
        "INVALID_MEMORY_RANGE_SET_ID": 0x18d,
        "INVALID_MEMORY_RANGE_SET": 0x18c,
        "JOB_REFUSED": 0x70b,
    }),
    "IDENTIFY": Row(0x06, 0, "to_host", {
        "INVALID_FIELD": 0x002,
        "INVALID_NAMESPACE": 0x00b,
        "BAD_COMMAND_SET": 0x12c,
    }),
    "GET_LOG_PAGE": Row(0x02, 0, "to_host", {
        "BAD_LOG_PAGE": 0x109,
        "INVALID_FIELD": 0x002,
        "INVALID_NAMESPACE": 0x00b,
        "BAD_COMMAND_SET": 0x12c,
    }),
    "GET_FEATURES": Row(0x0a, 0, "to_host", {
        "INVALID_FIELD": 0x002,
        "INVALID_NAMESPACE": 0x00b,
    }),
    "SET_FEATURES": Row(0x09, 0, "to_controller", {
        "INVALID_FIELD": 0x002,
        "INVALID_NAMESPACE": 0x00b,
        "FEATURE_NOT_NAMESPACE_SPECIFIC": 0x10f,
        "FEATURE_NOT_SAVEABLE": 0x10d,
        "FEATURE_NOT_CHANGEABLE": 0x10e,
    }),
    "ABORT": Row(0x08, 0, "none", {}),
    "ASYNC_EVENT_REQUEST": Row(0x0c, 0, "none", {
        "ASYNC_EVENT_LIMIT": 0x105,
    }),
    "KEEP_ALIVE": Row(0x18, 0, "none", {}),
    "CREATE_CQ": Row(0x05, 0, "none", {
        "BAD_QUEUE_ID": 0x101,
        "BAD_QUEUE_SIZE": 0x102,
        "INVALID_FIELD": 0x002,
    }),
    "CREATE_SQ": Row(0x01, 0, "none", {
        "BAD_QUEUE_ID": 0x101,
        "BAD_QUEUE_SIZE": 0x102,
        "BAD_COMPLETION_QUEUE": 0x100,
        "INVALID_FIELD": 0x002,
    }),
    "DELETE_CQ": Row(0x04, 0, "none", {
        "BAD_QUEUE_ID": 0x101,
        "BAD_QUEUE_DELETION": 0x10c,
    }),
    "DELETE_SQ": Row(0x00, 0, "none", {
        "BAD_QUEUE_ID": 0x101,
    }),
    "LOAD_PROGRAM": Row(0x85, 0, "none", {
        "PROGRAM_NOT_DOWNLOADABLE": 0x19a,
        "INVALID_PROGRAM_INDEX": 0x18f,
    }),
    "PROGRAM_ACTIVATION": Row(0x88, 0, "none", {
        "INVALID_FIELD": 0x002,
        "INVALID_PROGRAM_INDEX": 0x18f,
    }),
    "MEMORY_RANGE_SET": Row(0x89, 0, "to_controller", {
        "INVALID_FIELD": 0x002,
        "MEMORY_RANGES_EXCEEDED": 0x191,
        "MEMORY_RANGE_SETS_EXCEEDED": 0x192,
        "INVALID_MEMORY_NAMESPACE": 0x18b,
        "INVALID_MEMORY_RANGE_SET": 0x18c,
        "INVALID_MEMORY_RANGE_SET_ID": 0x18d,
    }),
    "FORMAT_NVM": Row(0x80, 0, "none", {
        "INVALID_NAMESPACE": 0x00b,
        "BAD_FORMAT": 0x10a,
        "INVALID_FIELD": 0x002,
        "INTERNAL_ERROR": 0x006,
    }),
    "SANITIZE": Row(0x84, 0, "none", {
        "INVALID_FIELD": 0x002,
        "SANITIZE_FAILED": 0x01c,
    }),
}
