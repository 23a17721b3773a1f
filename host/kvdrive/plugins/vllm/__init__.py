"""vLLM keeps its KV blocks in a file or on a drive: `spec`, `tier` and `processor` are loaded by name (docs/vllm.md)."""
