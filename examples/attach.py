"""Attach a transformers model to a drive, over two turns of one cache.

python examples/attach.py [FOLDER]     # a Hugging Face checkpoint; default: the shipped model
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import kvdrive

folder = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).resolve().parents[1] / "models" / "mini")
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
ids = tokenizer("def read_all(path):\n    ", return_tensors="pt").input_ids
stock = model.generate(ids, max_new_tokens=24, do_sample=False)

with kvdrive.attach(model, "emulator") as attached:
    cache = attached.cache()
    first = model.generate(ids, max_new_tokens=24, do_sample=False, past_key_values=cache)
    print(tokenizer.decode(first[0]))
    print("the same tokens as without a drive:", torch.equal(first, stock))
    more = model.generate(
        first, max_new_tokens=8, do_sample=False, past_key_values=cache
    )  # goes on; nothing is read again
    stats = attached.target.stats()
    print(f"{more.shape[1]} tokens; {stats.host_bytes_out:,} bytes came back, {stats.pages_read} pages read inside")
