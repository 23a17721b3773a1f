"""All paths of the server that need a key, where there is one."""

from __future__ import annotations

from kvdrive.server.answer_paths import AnswerPaths
from kvdrive.server.answering import Answering
from kvdrive.server.bodies import Bodies
from kvdrive.server.chat import Chats
from kvdrive.server.completions import CompletionPaths
from kvdrive.server.engine import ServedModel
from kvdrive.server.guard import Handler
from kvdrive.server.inputs import Inputs
from kvdrive.server.render_paths import RenderPaths
from kvdrive.server.response_paths import ResponsePaths
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.session_paths import SessionPaths
from kvdrive.server.settings import Settings
from kvdrive.server.submissions import Submissions
from kvdrive.server.token_paths import TokenPaths


def routes(checkpoint: ServedModel, scheduler: Scheduler, settings: Settings) -> list[tuple[str, str, Handler]]:
    """Path, method and handler of each route that works with the model or its sessions."""
    bodies = Bodies(checkpoint.tokenizer, settings)
    sessions = SessionPaths(scheduler, ignore_unknown=settings.allowed.ignore_unknown)
    chats = Chats(checkpoint.tokenizer, bodies.prompts)
    inputs = Inputs(checkpoint, bodies, chats, sessions, settings)
    submissions = Submissions(checkpoint, scheduler, chats.replays, settings)
    answering = Answering(submissions)
    return [
        *CompletionPaths(checkpoint.tokenizer, inputs, answering, settings.name).routes(),
        *ResponsePaths(inputs, answering, sessions).routes(),
        *AnswerPaths(bodies, inputs, submissions, checkpoint.bytes_per_token).routes(),
        *RenderPaths(bodies).routes(),
        *TokenPaths(checkpoint, bodies, settings, scheduler.slot_count).routes(),
        *sessions.routes(),
    ]
