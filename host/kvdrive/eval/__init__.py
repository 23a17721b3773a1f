"""How good a model is under an attention policy: perplexity by context, retrieval, and both against bytes read."""
