"""An HTTP server in OpenAI's format whose models keep their KV cache in drives."""
