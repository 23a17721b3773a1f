"""X-cache: for a share of the sequences a layer's input X is stored instead of K and V, which are computed again."""
