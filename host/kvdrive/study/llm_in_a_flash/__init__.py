"""LLM in a flash (feed-forward weights on flash)."""
