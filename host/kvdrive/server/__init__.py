"""An HTTP server in OpenAI's format whose models have their KV cache in drives."""
