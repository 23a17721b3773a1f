"""vLLM keeps its KV blocks in a file: `spec.DriveOffloadingSpec` is loaded by name (docs/vllm.md)."""
