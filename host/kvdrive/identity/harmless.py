"""What does not change K and V. Everything else does: what nobody has listed here counts.

docs/design/runtime.md shows these tables.
"""

from __future__ import annotations

CONFIG = {
    "_name_or_path": "the place of the checkpoint",
    "architectures": "the class that was saved; the class that computes counts by itself",
    "dtype": "the precision of the checkpoint; every tensor counts with its own",
    "torch_dtype": "the same under its old name",
    "transformers_version": "the version that saved the checkpoint; the code that computes counts by itself",
    "use_cache": "whether K and V are kept",
    "return_dict": "the form of the output",
    "output_attentions": "what else the output has",
    "output_hidden_states": "what else the output has",
    "_output_attentions": "what else the output has",
    "bos_token_id": "the prompt has it, or has it not",
    "eos_token_id": "where a text ends",
    "pad_token_id": "what fills up a batch; padded sequences are not saved",
    "id2label": "names of classes",
    "label2id": "names of classes",
    "problem_type": "the loss of a classifier",
    "_attn_implementation": "attention is kvdrive's while the model is attached",
    "_attn_implementation_internal": "attention is kvdrive's while the model is attached",
    "_attn_implementation_autoset": "attention is kvdrive's while the model is attached",
    "_post_init_done": "a mark of transformers",
    "_commit_hash": "the place of the checkpoint",
}
"""Fields of a configuration, of its parts too, with the reason."""

MODULE = {
    "_is_hf_initialized": "a mark of transformers",
    "name_or_path": "the place of the checkpoint",
    "generation_config": "how tokens are chosen",
    "peft_config": "what adapters were made from; their layers count",
    "loss_type": "of the training",
    "_loss_function": "of the training",
    "warnings_issued": "which warnings were given",
    "hf_device_map": "every tensor counts with its device",
    "is_loaded_in_4bit": "a mark of transformers; tensors and quantisation count",
    "is_loaded_in_8bit": "a mark of transformers; tensors and quantisation count",
    "_tp_plan": "how a model is split over processors",
    "_ep_plan": "how a model is split over processors",
    "_pp_plan": "how a model is split over processors",
    "_fsdp_plan": "how a model is split over processors",
    "all_tied_weights_keys": "how a checkpoint is read",
    "_tied_weights_keys": "how a checkpoint is read",
    "_keep_in_fp32_modules": "how a checkpoint is read",
    "_keep_in_fp32_modules_strict": "how a checkpoint is read",
    "_no_split_modules": "how a checkpoint is read",
    "_skip_keys_device_placement": "how a checkpoint is read",
    "_keys_to_ignore_on_load_unexpected": "how a checkpoint is read",
    "_keys_to_ignore_on_load_missing": "how a checkpoint is read",
    "_keys_to_ignore_on_save": "how a checkpoint is written",
    "_weight_conversions": "how a checkpoint is read",
    "_non_persistent_buffers_set": "which buffers a checkpoint has; all buffers count",
    "_backward_hooks": "gradients",
    "_backward_pre_hooks": "gradients",
    "_is_full_backward_hook": "gradients",
    "_output_capturing_hooks_installed": "what else the output has",
    "_forward_hooks_always_called": "which hooks see errors",
    "_state_dict_hooks": "how a checkpoint is written",
    "_state_dict_pre_hooks": "how a checkpoint is written",
    "_load_state_dict_pre_hooks": "how a checkpoint is read",
    "_load_state_dict_post_hooks": "how a checkpoint is read",
}
"""Attributes of a model and its modules."""

HOOKS = {
    "transformers.utils.output_capturing": "collects hidden states and attentions, what else the output has",
}
"""Modules whose forward hooks do not count: all that these do is look."""

ZEROS = {
    "rope_deltas": "what the last prompt's images add to positions, kept by the model: none, where the text had none",
}
"""Attributes of modules that count unless they are zero."""

CODE = {
    "transformers.modeling_utils": "reads and writes checkpoints",
    "transformers.generation": "chooses tokens",
    "transformers.configuration_utils": "reads configurations; their values count",
    "transformers.modeling_outputs": "the form of the output",
    "transformers.processing_utils": "prepares texts and images",
    "transformers.utils.logging": "messages",
    "transformers.utils.doc": "documentation",
    "transformers.utils.auto_docstring": "documentation",
    "transformers.utils.import_utils": "looks which packages are there",
    "transformers.utils.hub": "downloads",
    "transformers.utils.kernel_config": "a configuration; its values count",
    "transformers.loss": "of the training",
}
"""Modules whose text does not count, nor that of modules in them."""

ARGUMENTS = {
    "input_ids": "the tokens, which are the key",
    "past_key_values": "the cache itself",
    "use_cache": "whether K and V are kept",
    "logits_to_keep": "which logits come out",
    "return_dict": "the form of the output",
    "output_attentions": "what else the output has",
    "output_hidden_states": "what else the output has",
    "output_router_logits": "what else the output has",
    "labels": "the loss",
}
"""Arguments of a call of the model. `attention_mask` and the positions count unless they are those of a plain text."""

FILES = {
    "config.json": "its fields count, as the engine resolved them",
    "generation_config.json": "how tokens are chosen",
    "tokenizer*": "the tokens are the key",
    "special_tokens_map.json": "the tokens are the key",
    "added_tokens.json": "the tokens are the key",
    "vocab.*": "the tokens are the key",
    "merges.txt": "the tokens are the key",
    "chat_template*": "the tokens are the key",
    "*.md": "for readers",
    "LICENSE*": "for readers",
    ".*": "of the tools that brought the folder here",
}
"""Files of a checkpoint's folder, by pattern. Weights, code, scales and what else is there count with all bytes."""
