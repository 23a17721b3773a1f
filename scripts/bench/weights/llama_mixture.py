"""llama.cpp's mmap beside ours: a mixture of experts as a GGUF file, decoded by llama.cpp within a bound of memory.

llama.cpp maps the file. After each layer pages leave the page cache as in mapped_files.py, so that it holds no
more of the file than the bound. A few lines of C++ (llama_decode.cpp) are compiled against the llama.cpp that is
measured, which PATH names: the folder with its programs and libllama.so.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from bench.decode.llama_cpp import writer_of
from bench.weights.mapped_files import BoundedPages, Mapping, Region, on_disk
from bench.weights.mixture import VOCABULARY, Shape, file_of
from kvdrive.tree import ROOT

KINDS = ("BF16", "F16")  # formats of matrices, as gguf names them
_SOURCE = Path(__file__).with_name("llama_decode.cpp")
_LIBRARY = "libllama.so"
_READY_BUILT = ROOT / "build/llama/bin"  # by `make get WHAT=llama`
_ON_TENSOR = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_char_p, ctypes.c_void_p)
_EXPERTS = ("gate", "down", "up")  # w1, w2, w3 of Mixtral's checkpoints
_ATTENTION = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "o_proj"}


def missing() -> str | None:
    """What is missing for these rows, None if nothing is."""
    if importlib.util.find_spec("gguf") is None:
        return "the Python package gguf: pip install 'kvdrive[gguf]'"
    folder = _folder()
    if folder is None:
        return f"llama.cpp with shared libraries: make get WHAT=llama, or LLAMA=FOLDER names the folder of {_LIBRARY}"
    if _headers(folder) is None:
        return f"llama.h, in {folder.parent}/include or where {folder.parent}/CMakeCache.txt says"
    return None


def write_gguf(shape: Shape, folder: Path, path: Path, kind: str) -> None:
    """The checkpoint of a random mixture as llama.cpp stores Mixtral, without a tokenizer; matrices in format `kind`.

    One layer is in memory at a time. Norms and routers are float32, as in the files that llama.cpp's tools write.
    """
    import gguf

    config = shape.config()
    writer = writer_of(config, path)
    writer.add_rope_dimension_count(shape.hidden // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.used)
    matrix = gguf.GGMLQuantizationType[kind]
    size = {"BF16": 2, "F16": 2, "F32": 4}

    def stored(name: str) -> str:
        return "F32" if "norm" in name or "gate_inp" in name else kind

    for name, shape_of, _ in _tensors(shape, folder):
        one = gguf.GGMLQuantizationType[stored(name)]
        count = int(np.prod(shape_of)) * size[stored(name)]
        writer.add_tensor_info(f"{name}.weight", shape_of, np.dtype(np.float32), count, raw_dtype=one)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, _, read in _tensors(shape, folder):
        one = gguf.GGMLQuantizationType[stored(name)] if stored(name) == "F32" else matrix
        writer.write_tensor_data(gguf.quants.quantize(read().float().numpy(), one))
    writer.close()


def _tensors(shape: Shape, folder: Path) -> Iterator[tuple[str, tuple[int, ...], Callable[[], torch.Tensor]]]:
    """Name, shape and reader of every tensor, as llama.cpp has them; rows of Q and K in the order of its rotation."""
    config = shape.config()
    h, heads, kv_heads = shape.hidden, config.num_attention_heads, config.num_key_value_heads
    whole = safe_open(file_of(folder, -1), "pt")
    for name, source, sizes in (
        ("token_embd", "model.embed_tokens.weight", (VOCABULARY, h)),
        ("output_norm", "model.norm.weight", (h,)),
        ("output", "lm_head.weight", (VOCABULARY, h)),
    ):
        yield name, sizes, lambda source=source: whole.get_tensor(source)  # type: ignore[misc]
    for layer in range(shape.layers):
        file = safe_open(file_of(folder, layer), "pt")
        place = f"model.layers.{layer}"

        def read(source: str, file: Any = file, place: str = place) -> torch.Tensor:
            found: torch.Tensor = file.get_tensor(f"{place}.{source}.weight")
            return found

        yield f"blk.{layer}.attn_norm", (h,), lambda read=read: read("input_layernorm")
        for ours, theirs in _ATTENTION.items():
            rows = {"k_proj": kv_heads * 64, "v_proj": kv_heads * 64}.get(theirs, h)
            turned = {"q_proj": heads, "k_proj": kv_heads}.get(theirs)

            def attention(read: Any = read, theirs: str = theirs, turned: int | None = turned) -> torch.Tensor:
                found: torch.Tensor = read(f"self_attn.{theirs}")
                return found if turned is None else _rotated(found, turned)

            yield f"blk.{layer}.{ours}", (rows, h), attention
        yield f"blk.{layer}.ffn_norm", (h,), lambda read=read: read("post_attention_layernorm")
        yield f"blk.{layer}.ffn_gate_inp", (shape.experts, h), lambda read=read: read("block_sparse_moe.gate")
        for number, matrix in enumerate(_EXPERTS, 1):
            sizes = (h, shape.inner) if matrix == "down" else (shape.inner, h)

            def experts(read: Any = read, number: int = number) -> torch.Tensor:
                found = [read(f"block_sparse_moe.experts.{expert}.w{number}") for expert in range(shape.experts)]
                return torch.stack(found)

            yield f"blk.{layer}.ffn_{matrix}_exps", (shape.experts, *sizes), experts


def _rotated(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows [heads * size, h] of Q or K: llama.cpp rotates neighbours, transformers dimensions i and i + size / 2."""
    return rows.view(heads, 2, -1, rows.shape[1]).transpose(1, 2).reshape(rows.shape)


class LlamaMixture:
    """llama.cpp with a GGUF file of `write_gguf`. `bound`: bytes of the file in the page cache, None for all of it.

    `counters`: as those of `BoundedPages`. Raises RuntimeError with llama.cpp's words left on stderr.
    """

    def __init__(self, path: Path, shape: Shape, threads: int, context: int, bound: int | None) -> None:
        self._library = ctypes.CDLL(str(_compiled(path.parent)))
        self._library.open_model.restype = ctypes.c_void_p
        self._library.open_model.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, _ON_TENSOR]
        self._library.decode.restype = ctypes.POINTER(ctypes.c_float)
        self._library.decode.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self._shape, self._disk = shape, on_disk(path)
        self._error: BaseException | None = None
        callback = ctypes.cast(None, _ON_TENSOR) if bound is None else _ON_TENSOR(self._on_tensor)
        self._callback = callback  # must live as long as the model
        self._model = self._library.open_model(os.fsencode(path), context, threads, callback)
        if not self._model:
            raise RuntimeError(f"llama.cpp does not open {path}")
        self._pages: BoundedPages | None = None
        if bound is not None:
            regions = expert_regions(path)
            self._pages = BoundedPages([mapping_of(path)], regions, bound)
            Path("/proc/self/clear_refs").write_text("5")  # the peak of memory, which had the whole file: as from here

    def decode(self, token: int) -> NDArray[np.float32]:
        """The logits after this token, [vocabulary]."""
        found = self._library.decode(self._model, token)
        if self._error is not None:
            raise self._error
        if not found:
            raise RuntimeError("llama.cpp has computed no logits")
        if self._pages is not None and self._disk:
            self._pages.require_bound()
        return np.ctypeslib.as_array(found, (VOCABULARY,)).copy()

    def counters(self) -> dict[str, float]:
        """For the table; "=" in front: as it is at the end."""
        return {} if self._pages is None else self._pages.counters()

    def _on_tensor(self, name: bytes, data: int) -> bool:
        """Experts that a layer has chosen, or its end. Errors stop the token, and `decode` raises them."""
        assert self._pages is not None
        try:
            what, _, layer = name.decode().rpartition("-")
            if what == "l_out":
                self._pages.trim((int(layer), 0))
            else:
                for expert in (ctypes.c_int32 * self._shape.used).from_address(data):
                    self._pages.use((int(layer), expert))
        except BaseException as error:
            self._error = error
            return False
        return True


def expert_regions(path: Path) -> dict[Hashable, Region]:
    """The experts (layer, expert) in a GGUF file. What every token uses is in none of them, and stays."""
    import gguf

    regions: dict[Hashable, list[tuple[int, int]]] = {}
    for tensor in gguf.GGUFReader(path).tensors:
        found = re.fullmatch(r"blk\.(\d+)\.ffn_\w+_exps\.weight", tensor.name)
        if found is not None:
            experts = int(tensor.shape[-1])
            size = int(tensor.n_bytes) // experts
            for expert in range(experts):
                begin = int(tensor.data_offset) + expert * size
                regions.setdefault((int(found[1]), expert), []).append((begin, begin + size))
    return {key: Region(0, *ranges) for key, ranges in regions.items()}


def mapping_of(path: Path) -> Mapping:
    """Where this process has mapped a file. Raises RuntimeError if it has not."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, _, offset, _, _, *name = line.split(maxsplit=5)
        if name == [str(path.resolve())]:
            first, last = (int(one, 16) for one in place.split("-"))
            begin = int(offset, 16)
            return Mapping(path, first - begin, begin, begin + last - first)
    raise RuntimeError(f"llama.cpp has not mapped {path}")


def _folder() -> Path | None:
    """The folder of libllama.so: one on PATH, else that of `make get WHAT=llama`."""
    folders = [Path(one) for one in os.environ.get("PATH", "").split(os.pathsep) if one]
    return next((one for one in [*folders, _READY_BUILT] if (one / _LIBRARY).is_file()), None)


def _headers(folder: Path) -> list[Path] | None:
    """The folders of llama.h and ggml.h: of an installation, or of the sources of a build with CMake."""
    roots = [folder.parent]
    cache = folder.parent / "CMakeCache.txt"
    if cache.is_file() and (home := re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache.read_text(), re.M)):
        roots.append(Path(home[1]))
    found = [folder for root in roots for folder in (root / "include", root / "ggml" / "include") if folder.is_dir()]
    return found if any((one / "llama.h").is_file() for one in found) else None


def _compiled(scratch: Path) -> Path:
    """llama_decode.cpp as a library. Raises RuntimeError with the compiler's words."""
    made = scratch / "llama_decode.so"
    if made.is_file():
        return made
    folder = _folder()
    assert folder is not None, "missing() says what is missing"
    include = [f"-I{one}" for one in _headers(folder) or []]
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O2", "-shared", "-fPIC", *include, str(_SOURCE)]
    command += [f'-DLIBRARIES="{folder}"', f"-L{folder}", f"-Wl,-rpath,{folder}"]
    command += ["-lllama", "-lggml", "-lggml-base", "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{_SOURCE.name} does not compile with the llama.cpp in {folder}:\n{done.stderr[-2000:]}")
    return made
