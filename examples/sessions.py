"""A conversation over several runs of this program: each finds the K and V of the runs before on its drive.

python examples/sessions.py DRIVE [FOLDER]     # a drive's file; a Hugging Face checkpoint, default: the shipped model
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import kvdrive

drive = Path(sys.argv[1])
folder = sys.argv[2] if len(sys.argv) > 2 else str(Path(__file__).resolve().parents[1] / "models" / "mini")
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
so_far = Path(f"{drive}.json")  # token numbers: the same text can give others
ids = tokenizer("def read_all(path):\n    ", return_tensors="pt").input_ids
if so_far.exists():
    ids = torch.tensor([json.loads(so_far.read_text())])

with kvdrive.attach(model, drive, sessions=True) as attached:
    cache = attached.sessions.cache(ids)
    print(f"{cache.get_seq_length()} of {ids.shape[1]} tokens are on the drive")
    ids = model.generate(ids, max_new_tokens=16, do_sample=False, past_key_values=cache)

so_far.write_text(json.dumps(ids[0].tolist()))
print(tokenizer.decode(ids[0]))
