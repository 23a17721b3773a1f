"""Attach the shipped model to drives on other machines.

kvdrive drive create big.kv && kvdrive drive serve big.kv --nvme-tcp 127.0.0.1:4420     # there
python examples/remote_drive.py tcp://127.0.0.1:4420                                    # here
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import kvdrive

target = sys.argv[1]
folder = Path(__file__).resolve().parents[1] / "models" / "mini"
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
ids = tokenizer("class Drive:\n    def ", return_tensors="pt").input_ids

with kvdrive.attach(model, target, on_failure="recompute") as attached:
    answer = model.generate(ids, max_new_tokens=24, do_sample=False)
    print(tokenizer.decode(answer[0]))
    for drive in attached.target.drives:
        stats = drive.stats()
        print(
            f"{stats.attention_jobs} attention jobs, {stats.host_bytes_in + stats.host_bytes_out:,} bytes over the wire"
        )
