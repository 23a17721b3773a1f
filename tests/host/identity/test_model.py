"""What an identity is made of, beside what the mutations show."""

import torch

from kvdrive.identity import model as identity


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
        self.second = torch.nn.Parameter(torch.ones(5, dtype=torch.bfloat16))


def test_tensors_hashed_side_by_side_have_the_digests_of_one_thread(monkeypatch):
    monkeypatch.setattr(identity, "_MANY", 0)
    tensors = list(Small().parameters())
    found = identity._hashed(tensors, {})
    assert [found[id(one)].digest for one in tensors] == [identity._digest(one) for one in tensors]
    assert identity._hashed(tensors, found) == {}
    with torch.no_grad():
        tensors[1].add_(1)
    assert list(identity._hashed(tensors, found)) == [id(tensors[1])]
    assert identity._hashed(_in_inference_mode(), {}) == {}


def _in_inference_mode():
    with torch.inference_mode():
        return [torch.ones(3)]
