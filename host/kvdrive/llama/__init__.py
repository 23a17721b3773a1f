"""llama.cpp computes in this process: a thin binding over libllama, with K and V in a drive (`host/llama_cpp`)."""
