"""A script that ends without detaching its model."""

import sys

import forked

SCRIPT = """
import sys, torch, kvdrive
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
sizes = dict(hidden_size=64, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=2, intermediate_size=64)
model = LlamaForCausalLM(LlamaConfig(vocab_size=100, **sizes)).eval()
attached = kvdrive.attach(model, sys.argv[1], sessions=True)
ids = torch.arange(1, 90)[None]
cache = attached.sessions.cache(ids)
print(cache.get_seq_length())
model.generate(ids, past_key_values=cache, max_new_tokens=4, do_sample=False)
"""


def test_what_is_left_attached_is_saved_and_closed_without_a_word(tmp_path):
    found = [
        forked.run([sys.executable, "-c", SCRIPT, str(tmp_path / "drive.kv")], capture_output=True, text=True)
        for _ in range(2)
    ]
    assert [(done.returncode, done.stdout, done.stderr) for done in found] == [(0, "0\n", ""), (0, "88\n", "")]
