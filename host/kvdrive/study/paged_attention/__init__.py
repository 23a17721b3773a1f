"""PagedAttention with a tier on SSD (vLLM with GPUDirect Storage)."""
