"""A conversation over several runs of this program: each finds the K and V of the runs before on its drive.

python examples/sessions.py DRIVE [FOLDER]     # a drive's file; a Hugging Face checkpoint, default: the shipped model
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import kvdrive

drive = Path(sys.argv[1])
folder = sys.argv[2] if len(sys.argv) > 2 else str(Path(__file__).resolve().parents[1] / "models" / "mini")
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
text = Path(f"{drive}.txt")
so_far = text.read_text() if text.exists() else "def read_all(path):\n    "
ids = tokenizer(so_far, return_tensors="pt").input_ids

with kvdrive.attach(model, drive, sessions=True) as attached:
    cache = attached.sessions.cache(ids)
    print(f"{cache.get_seq_length()} of {ids.shape[1]} tokens are on the drive")
    ids = model.generate(ids, max_new_tokens=16, do_sample=False, past_key_values=cache)

text.write_text(tokenizer.decode(ids[0]))
