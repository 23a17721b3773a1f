"""The fields of a request: what is accepted, what is refused by name, and the sentences that say so.

A model of a request declares three kinds of fields, and nothing else is accepted:

- those that it implements: its pydantic fields, each with `Says`;
- `neutral`: those that it does not implement; they are accepted with the listed values, which change nothing;
- `harmless`: those that no answer depends on; they are accepted with any value.

A field that is null counts as not sent. The check and the page of accepted fields (docs/requests.md) read these tables.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, ValidationInfo, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, from_json

from kvdrive.server.errors import ApiError

log = logging.getLogger(__name__)
_SHOWN = 60  # characters of a name or a value in a message
_MOST_PARAM = 200  # characters of `param` in an error
_NOTED = 10  # names in the log, for each request
Json = dict[str, Any]
Where = tuple[int | str, ...]
AnyFields = TypeVar("AnyFields", bound="Fields")


@dataclass(frozen=True)
class Says:
    """`takes`: the values of a field, as the end of "NAME must be ...". `does`: what the field is for."""

    takes: str
    does: str = ""


@dataclass
class Unknown:
    """What happens to fields that are in no table. `ignored`: the first of their names, if they are ignored."""

    ignore: bool = False
    ignored: list[str] = field(default_factory=list)

    def note(self, name: str) -> None:
        """A field is ignored."""
        if len(self.ignored) < _NOTED:
            self.ignored.append(name[:_SHOWN])


class Fields(BaseModel):
    """An object in a request. See the module."""

    model_config = ConfigDict(extra="forbid", strict=True)

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {}
    harmless: ClassVar[dict[str, str]] = {}

    @classmethod
    def known(cls) -> dict[str, FieldInfo]:
        """The fields that it implements, by their names in requests."""
        return {found.alias or name: found for name, found in cls.model_fields.items()}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        """The schema, with what each field is for, and with those that are accepted beside the implemented ones."""
        found = handler.resolve_ref_schema(handler(core_schema))
        properties = found.setdefault("properties", {})
        for name, one in cls.known().items():
            properties[name]["description"] = says_of(one).does or says_of(one).takes
        for name, values in cls.neutral.items():
            properties[name] = {"enum": [*values, None], "description": "not implemented"}
        for name, why in cls.harmless.items():
            properties[name] = {"description": why}
        return found

    @model_validator(mode="before")
    @classmethod
    def _take_what_counts(cls, sent: Any, info: ValidationInfo) -> Any:
        if not isinstance(sent, dict):
            return sent
        unknown = info.context if isinstance(info.context, Unknown) else Unknown()
        taken = {}
        for name, value in sent.items():
            if value is None or name in cls.harmless:
                continue
            if name in cls.known():
                taken[name] = value
            elif name in cls.neutral:
                if not any(_same(value, one) for one in cls.neutral[name]):
                    raise PydanticCustomError("unsupported_parameter", "not supported", {"name": name})
            elif unknown.ignore:
                unknown.note(name)
            else:
                raise PydanticCustomError("unknown_parameter", "not known", {"name": name})
        return taken


class OfTypes(Fields):
    """An object whose `type` says which other fields it has.

    `fields_of`: the fields that each type needs, and those that it may have. `called`: what such objects are.
    """

    fields_of: ClassVar[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]]
    called: ClassVar[str]

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        kind = self.type  # type: ignore[attr-defined]
        needed, possible = self.fields_of[kind]
        for name, sent in ((name, getattr(self, attribute)) for name, attribute in self._attributes().items()):
            if sent is not None and name not in (*needed, *possible):
                refuse(f"{{param}} is not for {self.called} of type {kind}", name)
            if sent is None and name in needed:
                refuse(f"{{param}} is missing: {self.called} of type {kind} need it", name)
        return self

    @classmethod
    def _attributes(cls) -> dict[str, str]:
        """The attribute of each field but `type`, by the field's name in requests."""
        return {found.alias or name: name for name, found in cls.model_fields.items() if name != "type"}


class AsChat(Fields):
    """A request of another protocol that says the same as a chat of OpenAI's.

    `names`: what its fields are called, by the name in the chat, where that is another one.
    """

    names: ClassVar[dict[str, str]] = {}

    @property
    def thinks(self) -> bool | None:
        """Whether the model is to think before it answers; None: as it does by itself."""
        return None

    def for_chat(self) -> Json:
        """The fields of the chat."""
        raise NotImplementedError


def parse(kind: type[AnyFields], body: bytes, *, ignore_unknown: bool = False) -> AnyFields:
    """The request in a body of JSON. `ignore_unknown`: fields in no table are logged and left out. Raises ApiError."""
    try:
        sent = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    unknown = Unknown(ignore_unknown)
    request = taken(kind, sent, unknown)
    if unknown.ignored:
        log.warning("ignored fields of a request that this server does not know: %s", ", ".join(unknown.ignored))
    return request


def taken(kind: type[AnyFields], sent: Any, unknown: Unknown | None = None) -> AnyFields:
    """The request that `sent` describes. Raises ApiError."""
    try:
        return kind.model_validate(sent, context=unknown)
    except ValidationError as error:
        raise _refusal(kind, error.errors(include_url=False)[0]) from error


def refuse(sentence: str, param: str) -> NoReturn:
    """For validators of models: refuse the request with this sentence about the field `param` of the model.

    "{param}" in the sentence becomes the place of the field in the request. A sentence that speaks of the field begins
    with it: the field may have another name for the client (`ApiError.renamed`).
    """
    raise PydanticCustomError("refused", "refused", {"sentence": sentence, "param": param})


def unknown_field(param: str) -> ApiError:
    """The answer to a field, or a query parameter, that is in no table."""
    return ApiError(
        400,
        f"this server does not know the field '{param[:_SHOWN]}': leave it out, or start the server with "
        "--unknown-fields warn, which ignores it",
        param=param[:_MOST_PARAM],
        code="unknown_parameter",
    )


def _refusal(kind: type[Fields], found: ErrorDetails) -> ApiError:
    """The answer to the first error that pydantic found."""
    where, problem, context = found["loc"], found["type"], found.get("ctx", {})
    owner, says = _described(kind, where)
    if problem == "refused":
        name = context["param"]
        param = as_param(where if where[-1:] == (name,) else (*where, name))
        return ApiError(400, context["sentence"].replace("{param}", param), param=param, code="invalid_value")
    if problem == "unknown_parameter":
        return unknown_field(as_param((*where, context["name"])))
    if problem == "unsupported_parameter":
        return _unsupported(as_param((*where, context["name"])), owner.neutral[context["name"]])
    if says is None:
        return ApiError(400, "the body must be a JSON object with the fields of the request", code="invalid_value")
    param = as_param(where)
    if problem == "missing":
        sentence = f"{param} is missing: it must be {says.takes}"
        return ApiError(400, sentence, param=param, code="missing_required_parameter")
    if isinstance(where[-1], int):
        sentence = f"{as_param(where[:-1])} must be {says.takes}; its entry [{where[-1]}] is not one"
    else:
        sentence = f"{param} must be {says.takes}{_shown(found['input'])}"
    return ApiError(400, sentence, param=param, code="invalid_value")


def _unsupported(param: str, values: tuple[Any, ...]) -> ApiError:
    other = f", or send {' or '.join(map(json.dumps, values))}" if values else ""
    sentence = f"{param} is not supported by this server: leave it out{other}"
    return ApiError(400, sentence, param=param, code="unsupported_parameter")


def _described(kind: type[Fields], where: Where) -> tuple[type[Fields], Says | None]:
    """The model of the object at `where`, or of the one that has the field there; and what the last field says."""
    owner, says = kind, None
    for step in where:
        if not isinstance(step, int):
            found = owner.known()[str(step)]
            says, owner = says_of(found), nested(found) or owner
    return owner, says


def says_of(found: FieldInfo) -> Says:
    """What a field of a model says of itself."""
    return next(one for one in found.metadata if isinstance(one, Says))


def nested(found: FieldInfo) -> type[Fields] | None:
    """The model of the objects in a field, as in `list[Message]` or `StreamOptions | None`."""
    kinds = [found.annotation]
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, type) and issubclass(kind, Fields):
            return kind
        kinds += get_args(kind)
    return None


def as_param(where: Where) -> str:
    """A place in a request as OpenAI writes it: messages[1].content."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).removeprefix(".")


def _shown(value: Any) -> str:
    """A short value, to be appended to what it should be."""
    if not isinstance(value, bool | int | float | str):
        return ""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:  # an integer with thousands of digits
        return ""
    return f", not {text}" if len(text) <= _SHOWN else ""


def _same(a: Any, b: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)
