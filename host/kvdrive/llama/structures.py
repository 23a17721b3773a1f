"""The structures of llama.h that are passed by value, as RELEASES have them.

Other releases add fields without a change of any number, so that `functions.load` refuses them, and compares the
defaults. A test compares the fields with the header.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_bool, c_float, c_int, c_int8, c_int32, c_size_t, c_uint32, c_void_p

RELEASES = ("0.5.0", "0.5.0-dev")  # what llama_version says
FLASH_ATTENTION, BINARY16, NO_SPLIT = 1, 1, 0  # llama_flash_attn_type, ggml_type, llama_split_mode


class ModelParams(Structure):
    """llama_model_params."""

    _fields_ = [
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int),
        ("load_mode", c_int),
        ("lazy_mode", c_int),
        ("main_gpu", c_int32),
        ("tensor_split", c_void_p),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
    ]


class ContextParams(Structure):
    """llama_context_params."""

    _fields_ = [
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int),
        ("rope_scaling_type", c_int),
        ("pooling_type", c_int),
        ("attention_type", c_int),
        ("flash_attn_type", c_int),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int),
        ("type_v", c_int),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
    ]


class Batch(Structure):
    """llama_batch."""

    _fields_ = [
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    ]


STRUCTURES: dict[str, type[ctypes.Structure]] = {
    "llama_model_params": ModelParams,
    "llama_context_params": ContextParams,
    "llama_batch": Batch,
}


def plausible(model: ModelParams, context: ContextParams) -> bool:
    """True if llama.cpp's defaults stand in the fields of their names: a release with other fields moves them."""
    return (
        (model.devices, model.tensor_buft_overrides, model.kv_overrides, model.progress_callback) == (None,) * 4
        and (model.vocab_only, model.check_tensors, model.use_extra_bufts, model.no_alloc) == (0, 0, 1, 0)
        and (context.n_batch, context.n_ubatch, context.n_seq_max) == (2048, 512, 1)
        and (context.n_threads, context.n_threads_batch) == (4, 4)
        and (context.rope_scaling_type, context.pooling_type, context.attention_type) == (-1, -1, -1)
        and (context.flash_attn_type, context.type_k, context.type_v) == (-1, BINARY16, BINARY16)
        and (context.yarn_ext_factor, context.cb_eval, context.abort_callback) == (-1, None, None)
        and (context.embeddings, context.offload_kqv, context.no_perf) == (0, 1, 1)
        and (context.samplers, context.n_samplers, context.ctx_other) == (None, 0, None)
    )
