"""The golden model: docs/arithmetic.md in numpy, with integers only. Every engine is compared with it.

`golden.float64` is a second, plain floating-point model of the same algorithms; it only measures errors.
"""

from golden import abi, bitmap, code_job, exp2, float64, group_job, half, job, single, wide
from golden.argtopk import ArgtopkResult, argtopk
from golden.attention import AttentionResult, attention, merge_partials, scale_bits
from golden.ffn import Activation, FfnResult, ffn, silu
from golden.gemv import (
    AccumulateResult,
    GemvResult,
    block_columns,
    gemv_accumulate,
    gemv_columns,
    gemv_rows,
)
from golden.group_index import GroupIndex, build_index, index_exponent
from golden.groups import ChoiceResult, GroupsResult, group_choice, groups
from golden.page_filter import FilterResult, page_filter
from golden.softmax import SoftmaxResult, scores, softmax
from golden.sparf import (
    RowsResult,
    SparfResult,
    TokensResult,
    sparf,
    sparf_attend,
    sparf_rows,
    sparf_tokens,
    v_sum,
)

__all__ = [
    "AccumulateResult",
    "Activation",
    "ArgtopkResult",
    "AttentionResult",
    "ChoiceResult",
    "FfnResult",
    "FilterResult",
    "GemvResult",
    "GroupIndex",
    "GroupsResult",
    "RowsResult",
    "SoftmaxResult",
    "SparfResult",
    "TokensResult",
    "abi",
    "argtopk",
    "attention",
    "bitmap",
    "block_columns",
    "build_index",
    "code_job",
    "exp2",
    "ffn",
    "float64",
    "gemv_accumulate",
    "gemv_columns",
    "gemv_rows",
    "group_choice",
    "group_job",
    "groups",
    "half",
    "index_exponent",
    "job",
    "merge_partials",
    "page_filter",
    "scale_bits",
    "scores",
    "silu",
    "single",
    "softmax",
    "sparf",
    "sparf_attend",
    "sparf_rows",
    "sparf_tokens",
    "v_sum",
    "wide",
]
