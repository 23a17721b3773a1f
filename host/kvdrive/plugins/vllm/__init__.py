"""vLLM stores its KV blocks in a file or on a drive: it loads `spec`, `tier` and `processor` by name (docs/vllm.md)."""
