"""The paths that apps of llama.cpp's server expect beside those of OpenAI: tokens, and properties of the server."""

from __future__ import annotations

import re

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from transformers.convert_slow_tokenizer import bytes_to_unicode

import kvdrive
from kvdrive.server.bodies import Bodies
from kvdrive.server.engine import ServedModel
from kvdrive.server.errors import NO_EMBEDDINGS, ApiError
from kvdrive.server.fields import Json
from kvdrive.server.guard import Handler
from kvdrive.server.settings import Settings
from kvdrive.server.token_requests import DetokenizeRequest, TokenizeRequest

_BYTE_OF = {letter: byte for byte, letter in bytes_to_unicode().items()}  # in vocabularies of bytes
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # in vocabularies of SentencePiece
_NO_TEXT = "\ufffd"  # what a tokenizer writes for bytes that are no character


class TokenPaths:
    """`slots`: how many sequences run at once."""

    def __init__(self, checkpoint: ServedModel, bodies: Bodies, settings: Settings, slots: int) -> None:
        self._tokenizer = checkpoint.tokenizer
        self._bodies = bodies
        self._settings = settings
        self._slots = slots

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Path, method and handler of each route."""
        return [
            ("/tokenize", "POST", self._tokenize),
            ("/detokenize", "POST", self._detokenize),
            ("/props", "GET", self._props),
            ("/v1/embeddings", "POST", self._embeddings),
        ]

    async def _tokenize(self, http: HttpRequest) -> Response:
        request = await self._bodies.read(http, TokenizeRequest)
        self._bodies.prompts.check_characters(len(request.content), "content")
        return JSONResponse({"tokens": await self._bodies.prompts.run(lambda: self._tokens(request))})

    def _tokens(self, request: TokenizeRequest) -> list[int] | list[Json]:
        tokens: list[int] = self._tokenizer(
            request.content,
            add_special_tokens=bool(request.add_special),
            split_special_tokens=request.parse_special is False,
            verbose=False,
        )["input_ids"]
        return [{"id": one, "piece": self._piece(one)} for one in tokens] if request.with_pieces else tokens

    def _piece(self, token: int) -> str | list[int]:
        """The text of a token; its bytes where they are no text."""
        text: str = self._tokenizer.decode([token], clean_up_tokenization_spaces=False)
        name: str = self._tokenizer.convert_ids_to_tokens(token)
        if _NO_TEXT not in text:
            return text
        if found := _BYTE.fullmatch(name):
            return [int(found[1], 16)]
        return [_BYTE_OF[letter] for letter in name] if all(letter in _BYTE_OF for letter in name) else text

    async def _detokenize(self, http: HttpRequest) -> Response:
        request = await self._bodies.read(http, DetokenizeRequest)
        if len(request.tokens) > self._settings.context:
            text = f"tokens must be {self._settings.context} at most: send them in parts"
            raise ApiError(400, text, param="tokens", code="context_length_exceeded")
        if any(token >= len(self._tokenizer) for token in request.tokens):
            text = f"tokens are numbers from 0 to {len(self._tokenizer) - 1}"
            raise ApiError(400, text, param="tokens", code="invalid_value")
        work = self._bodies.prompts.run(
            lambda: self._tokenizer.decode(request.tokens, clean_up_tokenization_spaces=False)
        )
        return JSONResponse({"content": await work})

    async def _props(self, http: HttpRequest) -> Response:
        """The properties of llama.cpp's server that are true of this one, with the model's name instead of its path."""
        params = {
            "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0, "presence_penalty": 0.0,
            "frequency_penalty": 0.0, "max_tokens": -1, "stop": [], "ignore_eos": False, "stream": False,
        }  # fmt: skip
        template = self._tokenizer.chat_template
        return JSONResponse(
            {
                "default_generation_settings": {"n_ctx": self._settings.context, "params": params},
                "total_slots": self._slots,
                "model_path": self._settings.name,
                "model_alias": self._settings.name,
                "chat_template": template if isinstance(template, str) else "",
                "bos_token": self._tokenizer.bos_token or "",
                "eos_token": self._tokenizer.eos_token or "",
                "modalities": {"vision": False, "audio": False},
                "build_info": f"kvdrive {kvdrive.__version__}",
                "is_sleeping": False,
            }
        )

    async def _embeddings(self, http: HttpRequest) -> Response:
        raise ApiError(400, NO_EMBEDDINGS, param="model", code="unsupported_path")
