/* SPDX-License-Identifier: Apache-2.0 */
/* Generated from abi/commands.toml, abi/abi.toml and abi/nvme.toml by abi/generate.py; do not edit. */
/* The command set of kvdrive's drives for firmware in C99; docs/reference/command-set.md explains it. */
#ifndef KVDRIVE_COMMANDS_H
#define KVDRIVE_COMMANDS_H

#include <stdint.h>

#define KVDRIVE_ABI_VERSION 1
#define KVDRIVE_BEAT_BITS 512
#define KVDRIVE_BEAT_BYTES 64
#define KVDRIVE_LANES 32
#define KVDRIVE_MAX_HEAD_DIM 256
#define KVDRIVE_HEAD_DIM_STEP 32
#define KVDRIVE_MAX_GROUP 8
#define KVDRIVE_MAX_TOKENS 131072
#define KVDRIVE_MAX_TOP_K 16384
#define KVDRIVE_MIN_ROW_BYTES 32
#define KVDRIVE_MAX_ROW_BYTES 512
#define KVDRIVE_ROW_BYTES_STEP 32
#define KVDRIVE_PAGE_BYTES 4096
#define KVDRIVE_SCORE_FRACTION_BITS 20
#define KVDRIVE_SQE_BYTES 64
#define KVDRIVE_CQE_BYTES 16
#define KVDRIVE_CQE_STATUS_SHIFT 1
#define KVDRIVE_CQE_DO_NOT_RETRY 32768
#define KVDRIVE_COMMAND_HEAD_DIM_STEP 8
#define KVDRIVE_MAX_COMMAND_GROUP 128
#define KVDRIVE_FORMAT_PART 32
#define KVDRIVE_SPAN_TOKENS 32
#define KVDRIVE_MIN_INDEX_EXPONENT 2
#define KVDRIVE_MAX_INDEX_EXPONENT 34
#define KVDRIVE_VERSION_2_1 131328
#define KVDRIVE_LBA_BYTES 4096
#define KVDRIVE_IDENTIFY_BYTES 4096
#define KVDRIVE_MAX_NSID 4
#define KVDRIVE_NSID_MEMORY 2
#define KVDRIVE_NSID_VALUES 4
#define KVDRIVE_MAX_KEY_BYTES 16
#define KVDRIVE_MAX_VALUE_BYTES 1073741824
#define KVDRIVE_MAX_UPLOADS 64
#define KVDRIVE_MAX_FFN_HIDDEN 8192
#define KVDRIVE_MAX_FFN_TOKENS 64
#define KVDRIVE_MAX_ATTN_ROWS 64
#define KVDRIVE_FFN_LISTED 128
#define KVDRIVE_NSID_ALL 4294967295u
#define KVDRIVE_MEMORY_ALIGNMENT 4
#define KVDRIVE_MAX_MEMORY_RANGES 1
#define KVDRIVE_MAX_MEMORY_RANGE_SETS 16
#define KVDRIVE_ASYNC_EVENT_LIMIT 4
#define KVDRIVE_ABORT_LIMIT 4
#define KVDRIVE_ANA_GROUP 1
#define KVDRIVE_MAX_COPY_RANGES 128
#define KVDRIVE_MAX_COPY_RANGE_BLOCKS 256
#define KVDRIVE_MAX_COPY_BLOCKS 4096
#define KVDRIVE_ROOM_KELVIN 298
#define KVDRIVE_WARNING_KELVIN 343
#define KVDRIVE_CRITICAL_KELVIN 353
#define KVDRIVE_RING_MAGIC 1735289202
#define KVDRIVE_RING_VERSION 1
#define KVDRIVE_RING_REGISTERS 4096
#define KVDRIVE_RING_HEAP 12288

/* Mode */
#define KVDRIVE_MODE_EXACT 0x0u
#define KVDRIVE_MODE_PARTIAL 0x1u
#define KVDRIVE_MODE_SPARF_ROWS 0x2u
#define KVDRIVE_MODE_SPARF_TOKENS 0x3u
#define KVDRIVE_MODE_SPARF_ATTEND 0x4u
#define KVDRIVE_MODE_GROUPS 0x5u

/* KeyType */
#define KVDRIVE_KEY_TYPE_BINARY32 0x0u
#define KVDRIVE_KEY_TYPE_MAGNITUDE16 0x1u

/* Status */
#define KVDRIVE_ENGINE_STATUS_BAD_VERSION 0x1u
#define KVDRIVE_ENGINE_STATUS_BAD_MODE 0x2u
#define KVDRIVE_ENGINE_STATUS_BAD_GROUP 0x4u
#define KVDRIVE_ENGINE_STATUS_BAD_HEAD_DIM 0x8u
#define KVDRIVE_ENGINE_STATUS_BAD_LENGTH 0x10u
#define KVDRIVE_ENGINE_STATUS_BAD_R 0x20u
#define KVDRIVE_ENGINE_STATUS_BAD_K 0x40u
#define KVDRIVE_ENGINE_STATUS_UNALIGNED 0x80u
#define KVDRIVE_ENGINE_STATUS_OUT_OF_RANGE 0x100u
#define KVDRIVE_ENGINE_STATUS_BAD_SCALE 0x200u
#define KVDRIVE_ENGINE_STATUS_BAD_ROW_BYTES 0x400u
#define KVDRIVE_ENGINE_STATUS_BAD_PAGE_BYTES 0x800u
#define KVDRIVE_ENGINE_STATUS_BAD_UNIT 0x1000u
#define KVDRIVE_ENGINE_STATUS_BAD_EXPONENT 0x2000u
#define KVDRIVE_ENGINE_STATUS_NON_FINITE 0x10000u
#define KVDRIVE_ENGINE_STATUS_EMPTY 0x20000u

/* Opcode */
#define KVDRIVE_OPCODE_FLUSH 0x0u
#define KVDRIVE_OPCODE_KV_APPEND 0x81u
#define KVDRIVE_OPCODE_KV_READ 0x82u
#define KVDRIVE_OPCODE_SESSION_TRIM 0x84u
#define KVDRIVE_OPCODE_ATTN_SUBMIT 0x85u
#define KVDRIVE_OPCODE_ATTN_FETCH 0x86u
#define KVDRIVE_OPCODE_SESSION_FORK 0x88u
#define KVDRIVE_OPCODE_SESSION_ERASE 0x8cu
#define KVDRIVE_OPCODE_FFN_SUBMIT 0x8du
#define KVDRIVE_OPCODE_SESSION_REMOVE 0x90u
#define KVDRIVE_OPCODE_ATTN_SUBMIT_ROWS 0x91u

/* Namespace */
#define KVDRIVE_NAMESPACE_NVM 0x1u
#define KVDRIVE_NAMESPACE_CP 0x3u

/* KvKind */
#define KVDRIVE_KV_KIND_KEYS 0x0u
#define KVDRIVE_KV_KIND_VALUES 0x1u

/* AppendOption */
#define KVDRIVE_APPEND_OPTION_FUA 0x1u
#define KVDRIVE_APPEND_OPTION_SPARSE 0x2u
#define KVDRIVE_APPEND_OPTION_GROUPS 0x4u

/* NvmeStatus */
#define KVDRIVE_STATUS_SUCCESS 0x0u
#define KVDRIVE_STATUS_INVALID_OPCODE 0x1u
#define KVDRIVE_STATUS_INVALID_FIELD 0x2u
#define KVDRIVE_STATUS_INTERNAL_ERROR 0x6u
#define KVDRIVE_STATUS_INVALID_NAMESPACE 0xbu
#define KVDRIVE_STATUS_DATA_LENGTH 0xfu
#define KVDRIVE_STATUS_CAPACITY_EXCEEDED 0x81u
#define KVDRIVE_STATUS_UNRECOVERED_READ 0x281u
#define KVDRIVE_STATUS_CRC_MISMATCH 0x701u
#define KVDRIVE_STATUS_OUT_OF_SEQUENCE 0x702u
#define KVDRIVE_STATUS_UNKNOWN_SESSION 0x703u
#define KVDRIVE_STATUS_TOKEN_GAP 0x704u
#define KVDRIVE_STATUS_TOKENS_MISSING 0x705u
#define KVDRIVE_STATUS_ROW_MISMATCH 0x706u
#define KVDRIVE_STATUS_UNKNOWN_TICKET 0x707u
#define KVDRIVE_STATUS_TICKETS_EXHAUSTED 0x708u
#define KVDRIVE_STATUS_VALUE_NOT_FINITE 0x709u
#define KVDRIVE_STATUS_NO_VALID_TOKEN 0x70au
#define KVDRIVE_STATUS_JOB_REFUSED 0x70bu
#define KVDRIVE_STATUS_SESSION_EXISTS 0x70cu

/* Property */
#define KVDRIVE_PROPERTY_CAP 0x0u
#define KVDRIVE_PROPERTY_VS 0x8u
#define KVDRIVE_PROPERTY_INTMS 0xcu
#define KVDRIVE_PROPERTY_INTMC 0x10u
#define KVDRIVE_PROPERTY_CC 0x14u
#define KVDRIVE_PROPERTY_CSTS 0x1cu
#define KVDRIVE_PROPERTY_NSSR 0x20u
#define KVDRIVE_PROPERTY_AQA 0x24u
#define KVDRIVE_PROPERTY_ASQ 0x28u
#define KVDRIVE_PROPERTY_ACQ 0x30u
#define KVDRIVE_PROPERTY_DOORBELLS 0x1000u

/* AdminOpcode */
#define KVDRIVE_ADMIN_OPCODE_DELETE_SQ 0x0u
#define KVDRIVE_ADMIN_OPCODE_CREATE_SQ 0x1u
#define KVDRIVE_ADMIN_OPCODE_GET_LOG_PAGE 0x2u
#define KVDRIVE_ADMIN_OPCODE_DELETE_CQ 0x4u
#define KVDRIVE_ADMIN_OPCODE_CREATE_CQ 0x5u
#define KVDRIVE_ADMIN_OPCODE_IDENTIFY 0x6u
#define KVDRIVE_ADMIN_OPCODE_ABORT 0x8u
#define KVDRIVE_ADMIN_OPCODE_SET_FEATURES 0x9u
#define KVDRIVE_ADMIN_OPCODE_GET_FEATURES 0xau
#define KVDRIVE_ADMIN_OPCODE_ASYNC_EVENT_REQUEST 0xcu
#define KVDRIVE_ADMIN_OPCODE_KEEP_ALIVE 0x18u
#define KVDRIVE_ADMIN_OPCODE_FABRICS 0x7fu
#define KVDRIVE_ADMIN_OPCODE_FORMAT_NVM 0x80u
#define KVDRIVE_ADMIN_OPCODE_SANITIZE 0x84u
#define KVDRIVE_ADMIN_OPCODE_LOAD_PROGRAM 0x85u
#define KVDRIVE_ADMIN_OPCODE_PROGRAM_ACTIVATION 0x88u
#define KVDRIVE_ADMIN_OPCODE_MEMORY_RANGE_SET 0x89u

/* NvmOpcode */
#define KVDRIVE_NVM_OPCODE_FLUSH 0x0u
#define KVDRIVE_NVM_OPCODE_WRITE 0x1u
#define KVDRIVE_NVM_OPCODE_READ 0x2u
#define KVDRIVE_NVM_OPCODE_COMPARE 0x5u
#define KVDRIVE_NVM_OPCODE_WRITE_ZEROES 0x8u
#define KVDRIVE_NVM_OPCODE_DATASET_MANAGEMENT 0x9u
#define KVDRIVE_NVM_OPCODE_VERIFY 0xcu
#define KVDRIVE_NVM_OPCODE_COPY 0x19u

/* RowFormat */
#define KVDRIVE_ROW_FORMAT_BINARY16 0x0u
#define KVDRIVE_ROW_FORMAT_INT8 0x1u
#define KVDRIVE_ROW_FORMAT_INT4 0x2u
#define KVDRIVE_ROW_FORMAT_FP8 0x3u

/* ValueOpcode */
#define KVDRIVE_VALUE_OPCODE_STORE 0x1u
#define KVDRIVE_VALUE_OPCODE_RETRIEVE 0x2u
#define KVDRIVE_VALUE_OPCODE_LIST 0x6u
#define KVDRIVE_VALUE_OPCODE_DELETE 0x10u
#define KVDRIVE_VALUE_OPCODE_EXIST 0x14u

/* StoreOption */
#define KVDRIVE_STORE_OPTION_MUST_EXIST 0x1u
#define KVDRIVE_STORE_OPTION_MUST_NOT_EXIST 0x2u
#define KVDRIVE_STORE_OPTION_UNCOMPRESSED 0x4u
#define KVDRIVE_STORE_OPTION_FUA 0x40u
#define KVDRIVE_STORE_OPTION_PART 0x80u

/* RetrieveOption */
#define KVDRIVE_RETRIEVE_OPTION_RAW 0x1u
#define KVDRIVE_RETRIEVE_OPTION_URGENT 0x20u
#define KVDRIVE_RETRIEVE_OPTION_AHEAD 0x40u
#define KVDRIVE_RETRIEVE_OPTION_OFFSET 0x80u

/* MemoryOpcode */
#define KVDRIVE_MEMORY_OPCODE_READ 0x2u
#define KVDRIVE_MEMORY_OPCODE_FILL 0x4u
#define KVDRIVE_MEMORY_OPCODE_WRITE 0x5u

/* ProgramOpcode */
#define KVDRIVE_PROGRAM_OPCODE_EXECUTE_PROGRAM 0x1u

/* FfnLayout */
#define KVDRIVE_FFN_LAYOUT_DOWN 0x1u
#define KVDRIVE_FFN_LAYOUT_UP_DOWN 0x2u
#define KVDRIVE_FFN_LAYOUT_GATE_UP_DOWN 0x3u
#define KVDRIVE_FFN_LAYOUT_EXPERT 0x4u

/* FfnActivation */
#define KVDRIVE_FFN_ACTIVATION_GIVEN 0x0u
#define KVDRIVE_FFN_ACTIVATION_RELU 0x1u
#define KVDRIVE_FFN_ACTIVATION_SILU 0x2u

/* CommandSet */
#define KVDRIVE_COMMAND_SET_NVM 0x0u
#define KVDRIVE_COMMAND_SET_KEY_VALUE 0x1u
#define KVDRIVE_COMMAND_SET_MEMORY 0x3u
#define KVDRIVE_COMMAND_SET_PROGRAMS 0x4u

/* Program */
#define KVDRIVE_PROGRAM_DENSE 0x0u
#define KVDRIVE_PROGRAM_SPARF 0x1u
#define KVDRIVE_PROGRAM_PARTIAL 0x2u
#define KVDRIVE_PROGRAM_GROUPS 0x3u
#define KVDRIVE_PROGRAM_FFN 0x4u

/* Cns */
#define KVDRIVE_CNS_NAMESPACE 0x0u
#define KVDRIVE_CNS_CONTROLLER 0x1u
#define KVDRIVE_CNS_ACTIVE_NAMESPACES 0x2u
#define KVDRIVE_CNS_NAMESPACE_DESCRIPTORS 0x3u
#define KVDRIVE_CNS_CSI_NAMESPACE 0x5u
#define KVDRIVE_CNS_CSI_CONTROLLER 0x6u
#define KVDRIVE_CNS_CSI_ACTIVE_NAMESPACES 0x7u
#define KVDRIVE_CNS_INDEPENDENT_NAMESPACE 0x8u
#define KVDRIVE_CNS_COMMAND_SETS 0x1cu

/* LogPage */
#define KVDRIVE_LOG_PAGE_SUPPORTED_PAGES 0x0u
#define KVDRIVE_LOG_PAGE_ERRORS 0x1u
#define KVDRIVE_LOG_PAGE_SMART 0x2u
#define KVDRIVE_LOG_PAGE_FIRMWARE 0x3u
#define KVDRIVE_LOG_PAGE_CHANGED_NAMESPACES 0x4u
#define KVDRIVE_LOG_PAGE_COMMAND_EFFECTS 0x5u
#define KVDRIVE_LOG_PAGE_ANA 0xcu
#define KVDRIVE_LOG_PAGE_FEATURE_EFFECTS 0x12u
#define KVDRIVE_LOG_PAGE_SANITIZE_STATUS 0x81u
#define KVDRIVE_LOG_PAGE_STATISTICS 0xc0u
#define KVDRIVE_LOG_PAGE_PROGRAMS 0xc1u
#define KVDRIVE_LOG_PAGE_SESSIONS 0xc2u

/* Feature */
#define KVDRIVE_FEATURE_ARBITRATION 0x1u
#define KVDRIVE_FEATURE_POWER 0x2u
#define KVDRIVE_FEATURE_TEMPERATURE_THRESHOLD 0x4u
#define KVDRIVE_FEATURE_ERROR_RECOVERY 0x5u
#define KVDRIVE_FEATURE_WRITE_CACHE 0x6u
#define KVDRIVE_FEATURE_QUEUES 0x7u
#define KVDRIVE_FEATURE_INTERRUPT_COALESCING 0x8u
#define KVDRIVE_FEATURE_INTERRUPT_VECTOR 0x9u
#define KVDRIVE_FEATURE_WRITE_ATOMICITY 0xau
#define KVDRIVE_FEATURE_ASYNC_EVENTS 0xbu
#define KVDRIVE_FEATURE_TIMESTAMP 0xeu
#define KVDRIVE_FEATURE_KEEP_ALIVE 0xfu
#define KVDRIVE_FEATURE_HOST_BEHAVIOR 0x16u
#define KVDRIVE_FEATURE_COMMAND_SET_PROFILE 0x19u
#define KVDRIVE_FEATURE_KEY_VALUE 0x20u
#define KVDRIVE_FEATURE_HOST_ID 0x81u

/* StatusCode */
#define KVDRIVE_STATUS_INVALID_COMMAND_ID 0x3u
#define KVDRIVE_STATUS_DATA_TRANSFER 0x4u
#define KVDRIVE_STATUS_ABORTED 0x7u
#define KVDRIVE_STATUS_ABORTED_QUEUE_DELETED 0x8u
#define KVDRIVE_STATUS_COMMAND_SEQUENCE 0xcu
#define KVDRIVE_STATUS_BAD_SGL_SEGMENT 0xdu
#define KVDRIVE_STATUS_BAD_SGL_COUNT 0xeu
#define KVDRIVE_STATUS_BAD_SGL_TYPE 0x11u
#define KVDRIVE_STATUS_SANITIZE_FAILED 0x1cu
#define KVDRIVE_STATUS_NAMESPACE_WRITE_PROTECTED 0x20u
#define KVDRIVE_STATUS_BAD_PRP_OFFSET 0x13u
#define KVDRIVE_STATUS_LBA_OUT_OF_RANGE 0x80u
#define KVDRIVE_STATUS_INVALID_VALUE_SIZE 0x85u
#define KVDRIVE_STATUS_INVALID_KEY_SIZE 0x86u
#define KVDRIVE_STATUS_KEY_DOES_NOT_EXIST 0x87u
#define KVDRIVE_STATUS_UNRECOVERED_ERROR 0x88u
#define KVDRIVE_STATUS_KEY_EXISTS 0x89u
#define KVDRIVE_STATUS_BAD_COMPLETION_QUEUE 0x100u
#define KVDRIVE_STATUS_BAD_QUEUE_ID 0x101u
#define KVDRIVE_STATUS_BAD_QUEUE_SIZE 0x102u
#define KVDRIVE_STATUS_ABORT_LIMIT 0x103u
#define KVDRIVE_STATUS_ASYNC_EVENT_LIMIT 0x105u
#define KVDRIVE_STATUS_BAD_LOG_PAGE 0x109u
#define KVDRIVE_STATUS_BAD_FORMAT 0x10au
#define KVDRIVE_STATUS_BAD_QUEUE_DELETION 0x10cu
#define KVDRIVE_STATUS_FEATURE_NOT_SAVEABLE 0x10du
#define KVDRIVE_STATUS_FEATURE_NOT_CHANGEABLE 0x10eu
#define KVDRIVE_STATUS_FEATURE_NOT_NAMESPACE_SPECIFIC 0x10fu
#define KVDRIVE_STATUS_COMMAND_SIZE_LIMIT 0x183u
#define KVDRIVE_STATUS_COMPARE_FAILURE 0x285u
#define KVDRIVE_STATUS_COMMAND_SET_REJECTED 0x12bu
#define KVDRIVE_STATUS_BAD_COMMAND_SET 0x12cu
#define KVDRIVE_STATUS_INVALID_MEMORY_NAMESPACE 0x18bu
#define KVDRIVE_STATUS_INVALID_MEMORY_RANGE_SET 0x18cu
#define KVDRIVE_STATUS_INVALID_MEMORY_RANGE_SET_ID 0x18du
#define KVDRIVE_STATUS_INVALID_PROGRAM_INDEX 0x18fu
#define KVDRIVE_STATUS_MEMORY_RANGES_EXCEEDED 0x191u
#define KVDRIVE_STATUS_MEMORY_RANGE_SETS_EXCEEDED 0x192u
#define KVDRIVE_STATUS_PROGRAM_NOT_ACTIVATED 0x198u
#define KVDRIVE_STATUS_PROGRAM_NOT_DOWNLOADABLE 0x19au

/* X(name, namespace, opcode, data: 0 none, 1 to the drive, 2 to the host) for every command. */
#define KVDRIVE_COMMAND_TABLE(X) \
  X(KV_APPEND, 1, 0x81, 1) \
  X(KV_READ, 1, 0x82, 2) \
  X(SESSION_TRIM, 1, 0x84, 0) \
  X(SESSION_ERASE, 1, 0x8c, 0) \
  X(SESSION_REMOVE, 1, 0x90, 0) \
  X(SESSION_FORK, 1, 0x88, 0) \
  X(ATTN_SUBMIT, 3, 0x85, 1) \
  X(ATTN_SUBMIT_ROWS, 3, 0x91, 1) \
  X(ATTN_FETCH, 3, 0x86, 2) \
  X(FFN_SUBMIT, 3, 0x8d, 1) \
  X(FLUSH, 1, 0x00, 0) \
  X(READ, 1, 0x02, 2) \
  X(WRITE, 1, 0x01, 1) \
  X(WRITE_ZEROES, 1, 0x08, 0) \
  X(DATASET_MANAGEMENT, 1, 0x09, 1) \
  X(COMPARE, 1, 0x05, 1) \
  X(VERIFY, 1, 0x0c, 0) \
  X(COPY, 1, 0x19, 1) \
  X(STORE, 4, 0x01, 1) \
  X(RETRIEVE, 4, 0x02, 2) \
  X(LIST, 4, 0x06, 2) \
  X(DELETE, 4, 0x10, 0) \
  X(EXIST, 4, 0x14, 0) \
  X(FLUSH_VALUES, 4, 0x00, 0) \
  X(MEMORY_READ, 2, 0x02, 2) \
  X(MEMORY_WRITE, 2, 0x05, 1) \
  X(MEMORY_FILL, 2, 0x04, 0) \
  X(EXECUTE_PROGRAM, 3, 0x01, 1) \
  X(IDENTIFY, 0, 0x06, 2) \
  X(GET_LOG_PAGE, 0, 0x02, 2) \
  X(GET_FEATURES, 0, 0x0a, 2) \
  X(SET_FEATURES, 0, 0x09, 1) \
  X(ABORT, 0, 0x08, 0) \
  X(ASYNC_EVENT_REQUEST, 0, 0x0c, 0) \
  X(KEEP_ALIVE, 0, 0x18, 0) \
  X(CREATE_CQ, 0, 0x05, 0) \
  X(CREATE_SQ, 0, 0x01, 0) \
  X(DELETE_CQ, 0, 0x04, 0) \
  X(DELETE_SQ, 0, 0x00, 0) \
  X(LOAD_PROGRAM, 0, 0x85, 0) \
  X(PROGRAM_ACTIVATION, 0, 0x88, 0) \
  X(MEMORY_RANGE_SET, 0, 0x89, 1) \
  X(FORMAT_NVM, 0, 0x80, 0) \
  X(SANITIZE, 0, 0x84, 0)

/* Layouts, little endian. A typedef of negative size stops a compiler that aligns differently. */

typedef struct kvdrive_attention_job {
  uint16_t version;
  uint8_t mode;
  uint8_t group;
  uint16_t head_dim;
  uint16_t r;
  uint32_t tokens;
  uint32_t inline_tokens;
  uint32_t k_top;
  uint32_t local;
  uint32_t scale_log2e;
  uint32_t count;
  uint64_t q;
  uint64_t k;
  uint64_t v;
  uint64_t inline_scores;
  uint64_t inline_v;
  uint64_t valid;
  uint64_t rows;
  uint64_t v_sum;
  uint64_t out;
  uint64_t result;
  uint64_t reserved[2];
} kvdrive_attention_job;
typedef char kvdrive_attention_job_has_its_size[sizeof(kvdrive_attention_job) == 128 ? 1 : -1];

typedef struct kvdrive_attention_result {
  uint32_t status;
  uint32_t selected;
  uint32_t reserved0[2];
  int32_t max[8];
  uint32_t reserved1[4];
  uint64_t sum[8];
  uint32_t scale[8];
  uint32_t alpha[8];
} kvdrive_attention_result;
typedef char kvdrive_attention_result_has_its_size[sizeof(kvdrive_attention_result) == 192 ? 1 : -1];

typedef struct kvdrive_group_choice_job {
  uint16_t version;
  uint8_t group;
  uint8_t unit;
  uint16_t head_dim;
  uint16_t exponent;
  uint32_t tokens;
  uint32_t inline_tokens;
  uint32_t k_top;
  uint32_t scale_log2e;
  uint64_t reserved0;
  uint64_t q;
  uint64_t index;
  uint64_t inline_scores;
  uint64_t valid;
  uint64_t out;
  uint64_t result;
  uint64_t reserved1[6];
} kvdrive_group_choice_job;
typedef char kvdrive_group_choice_job_has_its_size[sizeof(kvdrive_group_choice_job) == 128 ? 1 : -1];

typedef struct kvdrive_group_choice_result {
  uint32_t status;
  uint32_t selected;
  uint32_t reserved0[2];
  int32_t max[8];
  uint32_t reserved1[4];
  uint64_t sum[8];
  uint64_t unread[8];
} kvdrive_group_choice_result;
typedef char kvdrive_group_choice_result_has_its_size[sizeof(kvdrive_group_choice_result) == 192 ? 1 : -1];

typedef struct kvdrive_sqe {
  uint8_t opcode;
  uint8_t flags;
  uint16_t cid;
  uint32_t nsid;
  uint32_t cdw2;
  uint32_t cdw3;
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t cdw10;
  uint32_t cdw11;
  uint32_t cdw12;
  uint32_t cdw13;
  uint32_t cdw14;
  uint32_t cdw15;
} kvdrive_sqe;
typedef char kvdrive_sqe_has_its_size[sizeof(kvdrive_sqe) == 64 ? 1 : -1];

typedef struct kvdrive_cqe {
  uint64_t result;
  uint16_t sq_head;
  uint16_t sq_id;
  uint16_t cid;
  uint16_t status;
} kvdrive_cqe;
typedef char kvdrive_cqe_has_its_size[sizeof(kvdrive_cqe) == 16 ? 1 : -1];

typedef struct kvdrive_kv_append {
  uint8_t opcode;
  uint8_t flags;
  uint16_t cid;
  uint32_t nsid;
  uint32_t session;
  uint8_t head;
  uint8_t heads;
  uint16_t layer;
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t first_token;
  uint16_t tokens;
  uint8_t kind;
  uint8_t type;
  uint32_t row_bytes;
  uint32_t sequence;
  uint32_t crc32c;
  uint32_t options;
} kvdrive_kv_append;
typedef char kvdrive_kv_append_has_its_size[sizeof(kvdrive_kv_append) == 64 ? 1 : -1];

typedef struct kvdrive_session_trim {
  uint8_t opcode;
  uint8_t flags;
  uint16_t cid;
  uint32_t nsid;
  uint32_t session;
  uint32_t reserved0;
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t from_token;
  uint32_t reserved1[5];
} kvdrive_session_trim;
typedef char kvdrive_session_trim_has_its_size[sizeof(kvdrive_session_trim) == 64 ? 1 : -1];

typedef struct kvdrive_session_fork {
  uint8_t opcode;
  uint8_t flags;
  uint16_t cid;
  uint32_t nsid;
  uint32_t session;
  uint32_t reserved0;
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t target;
  uint32_t tokens;
  uint32_t reserved1[4];
} kvdrive_session_fork;
typedef char kvdrive_session_fork_has_its_size[sizeof(kvdrive_session_fork) == 64 ? 1 : -1];

typedef struct kvdrive_attn_submit {
  uint8_t opcode;
  uint8_t flags;
  uint16_t cid;
  uint32_t nsid;
  uint32_t session;
  uint8_t head;
  uint8_t heads;
  uint16_t layer;
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t tokens;
  uint8_t mode;
  uint8_t group;
  uint8_t has_valid;
  uint8_t reserved0;
  uint16_t r;
  uint16_t k_top;
  uint16_t local;
  uint16_t inline_tokens;
  uint32_t crc32c;
  uint32_t scale_log2e;
} kvdrive_attn_submit;
typedef char kvdrive_attn_submit_has_its_size[sizeof(kvdrive_attn_submit) == 64 ? 1 : -1];

typedef struct kvdrive_attn_fetch {
  uint8_t opcode;
  uint8_t flags;
  uint16_t cid;
  uint32_t nsid;
  uint32_t reserved0[2];
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t ticket;
  uint32_t data_bytes;
  uint32_t reserved1[4];
} kvdrive_attn_fetch;
typedef char kvdrive_attn_fetch_has_its_size[sizeof(kvdrive_attn_fetch) == 64 ? 1 : -1];

typedef struct kvdrive_kv_read {
  uint8_t opcode;
  uint8_t flags;
  uint16_t cid;
  uint32_t nsid;
  uint32_t session;
  uint8_t head;
  uint8_t heads;
  uint16_t layer;
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t first_token;
  uint32_t tokens;
  uint32_t row_bytes;
  uint8_t kind;
  uint8_t reserved0[3];
  uint32_t reserved1[2];
} kvdrive_kv_read;
typedef char kvdrive_kv_read_has_its_size[sizeof(kvdrive_kv_read) == 64 ? 1 : -1];

typedef struct kvdrive_session_remove {
  uint8_t opcode;
  uint8_t flags;
  uint16_t cid;
  uint32_t nsid;
  uint32_t session;
  uint32_t reserved0;
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t first_token;
  uint32_t tokens;
  uint32_t before;
  uint32_t layers;
  uint32_t reserved1[2];
} kvdrive_session_remove;
typedef char kvdrive_session_remove_has_its_size[sizeof(kvdrive_session_remove) == 64 ? 1 : -1];

typedef struct kvdrive_value_command {
  uint8_t opcode;
  uint8_t flags;
  uint16_t cid;
  uint32_t nsid;
  uint8_t key_low[8];
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t size;
  uint8_t key_bytes;
  uint8_t options;
  uint16_t upload;
  uint32_t offset;
  uint32_t total;
  uint8_t key_high[8];
} kvdrive_value_command;
typedef char kvdrive_value_command_has_its_size[sizeof(kvdrive_value_command) == 64 ? 1 : -1];

typedef struct kvdrive_ffn_submit {
  uint8_t opcode;
  uint8_t flags;
  uint16_t cid;
  uint32_t nsid;
  uint8_t key_low[8];
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t offset;
  uint16_t hidden;
  uint16_t neurons;
  uint8_t layout;
  uint8_t activation;
  uint8_t tokens;
  uint8_t key_bytes;
  uint32_t crc32c;
  uint8_t key_high[8];
} kvdrive_ffn_submit;
typedef char kvdrive_ffn_submit_has_its_size[sizeof(kvdrive_ffn_submit) == 64 ? 1 : -1];

typedef struct kvdrive_attn_rows {
  uint8_t opcode;
  uint8_t flags;
  uint16_t cid;
  uint32_t nsid;
  uint32_t reserved0[2];
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t rows;
  uint32_t data_bytes;
  uint32_t crc32c;
  uint32_t reserved1[3];
} kvdrive_attn_rows;
typedef char kvdrive_attn_rows_has_its_size[sizeof(kvdrive_attn_rows) == 64 ? 1 : -1];

typedef struct kvdrive_attn_row {
  uint32_t reserved0[2];
  uint32_t session;
  uint8_t head;
  uint8_t heads;
  uint16_t layer;
  uint32_t data_bytes;
  uint32_t reserved1[5];
  uint32_t tokens;
  uint8_t mode;
  uint8_t group;
  uint8_t has_valid;
  uint8_t reserved2;
  uint16_t r;
  uint16_t k_top;
  uint16_t local;
  uint16_t inline_tokens;
  uint32_t reserved3;
  uint32_t scale_log2e;
} kvdrive_attn_row;
typedef char kvdrive_attn_row_has_its_size[sizeof(kvdrive_attn_row) == 64 ? 1 : -1];

typedef struct kvdrive_attn_row_result {
  uint32_t status;
  uint32_t engine_status;
  uint32_t data_bytes;
  uint32_t reserved;
} kvdrive_attn_row_result;
typedef char kvdrive_attn_row_result_has_its_size[sizeof(kvdrive_attn_row_result) == 16 ? 1 : -1];

typedef struct kvdrive_memory_range {
  uint32_t nsid;
  uint32_t length;
  uint64_t start;
  uint64_t reserved[2];
} kvdrive_memory_range;
typedef char kvdrive_memory_range_has_its_size[sizeof(kvdrive_memory_range) == 32 ? 1 : -1];

typedef struct kvdrive_dataset_range {
  uint32_t attributes;
  uint32_t blocks;
  uint64_t first_block;
} kvdrive_dataset_range;
typedef char kvdrive_dataset_range_has_its_size[sizeof(kvdrive_dataset_range) == 16 ? 1 : -1];

typedef struct kvdrive_copy_range {
  uint64_t reserved0;
  uint64_t first_block;
  uint16_t blocks;
  uint16_t reserved1[3];
  uint64_t reserved2;
} kvdrive_copy_range;
typedef char kvdrive_copy_range_has_its_size[sizeof(kvdrive_copy_range) == 32 ? 1 : -1];

typedef struct kvdrive_sgl_descriptor {
  uint64_t address;
  uint32_t length;
  uint8_t reserved[3];
  uint8_t kind;
} kvdrive_sgl_descriptor;
typedef char kvdrive_sgl_descriptor_has_its_size[sizeof(kvdrive_sgl_descriptor) == 16 ? 1 : -1];

typedef struct kvdrive_ring_segment {
  uint32_t magic;
  uint32_t version;
  uint64_t bytes;
  uint32_t device_event;
  uint32_t device_sleeps;
  uint32_t host_event;
  uint32_t host_waiters;
  uint64_t reserved[4];
} kvdrive_ring_segment;
typedef char kvdrive_ring_segment_has_its_size[sizeof(kvdrive_ring_segment) == 64 ? 1 : -1];

typedef struct kvdrive_identify_controller {
  uint16_t vid;
  uint16_t ssvid;
  uint8_t sn[20];
  uint8_t mn[40];
  uint8_t fr[8];
  uint8_t rab;
  uint8_t ieee[3];
  uint8_t cmic;
  uint8_t mdts;
  uint16_t cntlid;
  uint32_t ver;
  uint32_t rtd3r;
  uint32_t rtd3e;
  uint32_t oaes;
  uint32_t ctratt;
  uint16_t rrls;
  uint8_t bpcap;
  uint8_t reserved0;
  uint32_t nssl;
  uint8_t reserved1[2];
  uint8_t plsi;
  uint8_t cntrltype;
  uint8_t fguid[16];
  uint16_t crdt[3];
  uint8_t crcap;
  uint8_t reserved2[118];
  uint8_t nvmsr;
  uint8_t vwci;
  uint8_t mec;
  uint16_t oacs;
  uint8_t acl;
  uint8_t aerl;
  uint8_t frmw;
  uint8_t lpa;
  uint8_t elpe;
  uint8_t npss;
  uint8_t avscc;
  uint8_t apsta;
  uint16_t wctemp;
  uint16_t cctemp;
  uint16_t mtfa;
  uint32_t hmpre;
  uint32_t hmmin;
  uint64_t tnvmcap[2];
  uint64_t unvmcap[2];
  uint32_t rpmbs;
  uint16_t edstt;
  uint8_t dsto;
  uint8_t fwug;
  uint16_t kas;
  uint16_t hctma;
  uint16_t mntmt;
  uint16_t mxtmt;
  uint32_t sanicap;
  uint32_t hmminds;
  uint16_t hmmaxd;
  uint16_t nsetidmax;
  uint16_t endgidmax;
  uint8_t anatt;
  uint8_t anacap;
  uint32_t anagrpmax;
  uint32_t nanagrpid;
  uint32_t pels;
  uint16_t domain_id;
  uint8_t kpioc;
  uint8_t reserved3;
  uint16_t mptfawr;
  uint8_t reserved4[6];
  uint64_t megcap[2];
  uint8_t tmpthha;
  uint8_t reserved5[127];
  uint8_t sqes;
  uint8_t cqes;
  uint16_t maxcmd;
  uint32_t nn;
  uint16_t oncs;
  uint16_t fuses;
  uint8_t fna;
  uint8_t vwc;
  uint16_t awun;
  uint16_t awupf;
  uint8_t icsvscc;
  uint8_t nwpc;
  uint16_t acwu;
  uint16_t cdfs;
  uint32_t sgls;
  uint32_t mnan;
  uint64_t maxdna[2];
  uint32_t maxcna;
  uint32_t oaqd;
  uint8_t rhiri;
  uint8_t hirt;
  uint16_t cmmrtd;
  uint16_t nmmrtd;
  uint8_t minmrtg;
  uint8_t maxmrtg;
  uint8_t trattr;
  uint8_t reserved6[191];
  uint8_t subnqn[256];
  uint8_t reserved7[768];
  uint32_t ioccsz;
  uint32_t iorcsz;
  uint16_t icdoff;
  uint8_t fcatt;
  uint8_t msdbd;
  uint16_t ofcs;
  uint8_t dctype;
  uint8_t reserved8[241];
  uint8_t psd[1024];
  uint8_t engine[16];
  uint8_t preset[32];
  uint32_t engine_mhz;
  uint32_t abi_version;
  uint64_t slm_bytes;
  uint64_t kv_capacity_bytes;
  uint8_t vendor_reserved[952];
} kvdrive_identify_controller;
typedef char kvdrive_identify_controller_has_its_size[sizeof(kvdrive_identify_controller) == 4096 ? 1 : -1];

typedef struct kvdrive_lba_format {
  uint16_t metadata_bytes;
  uint8_t data_bits;
  uint8_t performance;
} kvdrive_lba_format;
typedef char kvdrive_lba_format_has_its_size[sizeof(kvdrive_lba_format) == 4 ? 1 : -1];

typedef struct kvdrive_identify_namespace {
  uint64_t nsze;
  uint64_t ncap;
  uint64_t nuse;
  uint8_t nsfeat;
  uint8_t nlbaf;
  uint8_t flbas;
  uint8_t mc;
  uint8_t dpc;
  uint8_t dps;
  uint8_t nmic;
  uint8_t rescap;
  uint8_t fpi;
  uint8_t dlfeat;
  uint16_t nawun;
  uint16_t nawupf;
  uint16_t nacwu;
  uint16_t nabsn;
  uint16_t nabo;
  uint16_t nabspf;
  uint16_t noiob;
  uint64_t nvmcap[2];
  uint16_t npwg;
  uint16_t npwa;
  uint16_t npdg;
  uint16_t npda;
  uint16_t nows;
  uint16_t mssrl;
  uint32_t mcl;
  uint8_t msrc;
  uint8_t kpios;
  uint8_t nulbaf;
  uint8_t reserved0;
  uint32_t kpiodaag;
  uint8_t reserved1[4];
  uint32_t anagrpid;
  uint8_t reserved2[3];
  uint8_t nsattr;
  uint16_t nvmsetid;
  uint16_t endgid;
  uint8_t nguid[16];
  uint8_t eui64[8];
  uint32_t lbaf[64];
  uint8_t reserved3[3712];
} kvdrive_identify_namespace;
typedef char kvdrive_identify_namespace_has_its_size[sizeof(kvdrive_identify_namespace) == 4096 ? 1 : -1];

typedef struct kvdrive_independent_namespace {
  uint8_t nsfeat;
  uint8_t nmic;
  uint8_t rescap;
  uint8_t fpi;
  uint32_t anagrpid;
  uint8_t nsattr;
  uint8_t reserved0;
  uint16_t nvmsetid;
  uint16_t endgid;
  uint8_t nstat;
  uint8_t kpios;
  uint16_t maxkt;
  uint16_t reserved1;
  uint32_t rgrpid;
  uint8_t reserved2[4072];
} kvdrive_independent_namespace;
typedef char kvdrive_independent_namespace_has_its_size[sizeof(kvdrive_independent_namespace) == 4096 ? 1 : -1];

typedef struct kvdrive_memory_namespace {
  uint64_t nsze;
  uint64_t ncap;
  uint32_t granularity;
  uint8_t reserved[4076];
} kvdrive_memory_namespace;
typedef char kvdrive_memory_namespace_has_its_size[sizeof(kvdrive_memory_namespace) == 4096 ? 1 : -1];

typedef struct kvdrive_programs_namespace {
  uint16_t programs;
  uint16_t active_programs;
  uint16_t max_memory_range_sets;
  uint16_t max_memory_ranges;
  uint32_t max_program_bytes;
  uint8_t reserved[4084];
} kvdrive_programs_namespace;
typedef char kvdrive_programs_namespace_has_its_size[sizeof(kvdrive_programs_namespace) == 4096 ? 1 : -1];

typedef struct kvdrive_key_value_format {
  uint16_t key_bytes;
  uint8_t reserved0;
  uint8_t performance;
  uint32_t value_bytes;
  uint32_t keys;
  uint32_t reserved1;
} kvdrive_key_value_format;
typedef char kvdrive_key_value_format_has_its_size[sizeof(kvdrive_key_value_format) == 16 ? 1 : -1];

typedef struct kvdrive_key_value_namespace {
  uint64_t nsze;
  uint64_t reserved0;
  uint64_t nuse;
  uint8_t nsfeat;
  uint8_t nkvf;
  uint8_t nmic;
  uint8_t rescap;
  uint8_t fpi;
  uint8_t kvfc;
  uint8_t reserved1[2];
  uint32_t novg;
  uint32_t anagrpid;
  uint8_t reserved2[3];
  uint8_t nsattr;
  uint16_t nvmsetid;
  uint16_t endgid;
  uint8_t nguid[16];
  uint8_t eui64[8];
  uint32_t kvf[64];
  uint8_t reserved3[3768];
} kvdrive_key_value_namespace;
typedef char kvdrive_key_value_namespace_has_its_size[sizeof(kvdrive_key_value_namespace) == 4096 ? 1 : -1];

typedef struct kvdrive_program_descriptor {
  uint8_t occupied;
  uint8_t active;
  uint8_t kind;
  uint8_t reserved0;
  uint16_t index;
  uint16_t reserved1;
  uint64_t identifier;
  uint8_t name[16];
  uint8_t reserved2[32];
} kvdrive_program_descriptor;
typedef char kvdrive_program_descriptor_has_its_size[sizeof(kvdrive_program_descriptor) == 64 ? 1 : -1];

typedef struct kvdrive_error_entry {
  uint64_t count;
  uint16_t sq_id;
  uint16_t cid;
  uint16_t status;
  uint16_t location;
  uint64_t lba;
  uint32_t nsid;
  uint8_t vendor;
  uint8_t trtype;
  uint8_t csi;
  uint8_t opcode;
  uint64_t specific;
  uint8_t reserved[24];
} kvdrive_error_entry;
typedef char kvdrive_error_entry_has_its_size[sizeof(kvdrive_error_entry) == 64 ? 1 : -1];

typedef struct kvdrive_smart_log {
  uint8_t critical_warning;
  uint8_t temperature[2];
  uint8_t spare_percent;
  uint8_t spare_threshold;
  uint8_t used_percent;
  uint8_t endurance_warning;
  uint8_t reserved0[25];
  uint64_t data_units_read[2];
  uint64_t data_units_written[2];
  uint64_t host_reads[2];
  uint64_t host_writes[2];
  uint64_t busy_minutes[2];
  uint64_t power_cycles[2];
  uint64_t power_on_hours[2];
  uint64_t unsafe_shutdowns[2];
  uint64_t media_errors[2];
  uint64_t error_entries[2];
  uint8_t reserved1[320];
} kvdrive_smart_log;
typedef char kvdrive_smart_log_has_its_size[sizeof(kvdrive_smart_log) == 512 ? 1 : -1];

typedef struct kvdrive_ana_log {
  uint64_t changes;
  uint16_t groups;
  uint16_t reserved0[3];
  uint32_t group;
  uint32_t namespaces;
  uint64_t group_changes;
  uint8_t state;
  uint8_t reserved1[15];
  uint32_t nsid[4];
} kvdrive_ana_log;
typedef char kvdrive_ana_log_has_its_size[sizeof(kvdrive_ana_log) == 64 ? 1 : -1];

typedef struct kvdrive_firmware_log {
  uint8_t active;
  uint8_t reserved0[7];
  uint64_t slots[7];
  uint8_t reserved1[448];
} kvdrive_firmware_log;
typedef char kvdrive_firmware_log_has_its_size[sizeof(kvdrive_firmware_log) == 512 ? 1 : -1];

typedef struct kvdrive_sanitize_status {
  uint16_t sprog;
  uint16_t sstat;
  uint32_t scdw10;
  uint32_t eto;
  uint32_t etbe;
  uint32_t etce;
  uint32_t etond;
  uint32_t etbend;
  uint32_t etcend;
  uint32_t etpvds;
  uint8_t ssi;
  uint8_t reserved[475];
} kvdrive_sanitize_status;
typedef char kvdrive_sanitize_status_has_its_size[sizeof(kvdrive_sanitize_status) == 512 ? 1 : -1];

typedef struct kvdrive_drive_statistics {
  uint32_t version;
  uint32_t reserved0;
  uint64_t commands;
  uint64_t failed_commands;
  uint64_t host_bytes_in;
  uint64_t host_bytes_out;
  uint64_t pages_written;
  uint64_t pages_read;
  uint64_t staged_bytes_read;
  uint64_t attention_jobs;
  uint64_t device_ns;
  uint64_t engine_cycles;
  uint64_t memory_bytes;
  uint64_t journal_bytes;
  uint64_t file_writes;
  uint64_t groups_live;
  uint64_t groups_available;
  uint64_t groups_queued;
  uint64_t groups_moved;
  uint64_t units_programmed;
  uint64_t pages_sensed;
  uint64_t lost_groups;
  uint64_t filter_pages;
  uint64_t filter_rows_kept;
  uint64_t filter_rows_dropped;
  uint64_t filter_bytes;
  uint64_t staged_bytes;
  uint64_t metadata_bytes;
  uint64_t erases;
  uint64_t least_erases;
  uint64_t most_erases;
  uint64_t bad_blocks;
  uint64_t program_failures;
  uint64_t erase_failures;
  uint64_t channels;
  uint64_t channel_bytes;
  uint64_t channel_busy_ns;
  uint64_t block_reads;
  uint64_t block_writes;
  uint64_t staged_budget;
  uint64_t metadata_budget;
  uint64_t session_groups;
  uint64_t run_groups;
  uint64_t groups_levelled;
  uint64_t reads_retried;
  uint64_t sensings_repeated;
  uint64_t values;
  uint64_t value_bytes;
  uint64_t value_stores;
  uint64_t value_retrieves;
  uint64_t reserved1[15];
} kvdrive_drive_statistics;
typedef char kvdrive_drive_statistics_has_its_size[sizeof(kvdrive_drive_statistics) == 512 ? 1 : -1];

#endif
