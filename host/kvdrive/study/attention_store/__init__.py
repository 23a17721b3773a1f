"""AttentionStore / CachedAttention (K and V reused across turns), with a replay of its evaluation."""
