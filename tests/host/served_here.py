"""The server's application in the test's own process, on a free port: it starts quickly, its deadlines are short."""

import json
import re
import socket
import threading
from contextlib import suppress
from functools import partial

import httpx2 as httpx
import uvicorn
from fixed_rates import ATTENDING_PAYS

from kvdrive.config.run import RunConfig
from kvdrive.generation import checkpoints
from kvdrive.prefix.options import SessionOptions
from kvdrive.server.app import application
from kvdrive.server.connections import BACKLOG, GuardedProtocol, Patience
from kvdrive.server.drafts import no_drafts
from kvdrive.server.jobs import Limits
from kvdrive.server.metrics import Metrics
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.settings import Allowed, Settings
from kvdrive.server.tenants import Tenants
from kvdrive.server.transformers_engine import open_engine
from kvdrive.targets.opening import DriveOptions, open_drives

CONTEXT, SLOTS = 64, 2
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class Listening:
    """An ASGI application on a port, in a thread of its own."""

    def __init__(self, app, patience):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        protocol = partial(GuardedProtocol, patience)
        started = threading.Event()
        options = {"ws": "none", "backlog": BACKLOG, "log_level": "warning", "timeout_keep_alive": 1}
        self.server = uvicorn.Server(uvicorn.Config(_telling(app, started), http=protocol, **options))
        self._thread = threading.Thread(target=self.server.run, args=([self._socket],))
        self._thread.start()
        assert started.wait(30)

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.settimeout(30)
        return connection

    def exchange(self, sent):
        """Send bytes; returns what comes until the server closes the connection."""
        with self.connect() as connection:
            with suppress(ConnectionError):  # it may be refused before all is sent
                connection.sendall(sent)
            return received(connection)

    def close(self):
        self.server.should_exit = True
        self._thread.join()


def received(connection):
    """All that comes on a connection until its end."""
    found = b""
    with suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            found += piece
    return found


def _telling(app, started):
    """`app`, which sets `started` when the first request could be answered."""

    async def told(scope, receive, send):
        async def noticed(message):
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                started.set()

        await app(scope, receive, noticed if scope["type"] == "lifespan" else send)

    return told


class ServedHere(Listening):
    """A model named "tiny" with a context of `context` tokens and `slots` slots.

    Its sessions are stored on an emulated drive, where attending to them pays, or in the process.
    """

    def __init__(
        self, checkpoint, folder, *, tenants=None, patience=None, active="drive", keep=True, context=CONTEXT,
        slots=SLOTS, sessions=None, drafts=no_drafts, session_memory=0, **settings,
    ):  # fmt: skip
        self.model = model = checkpoints.load(str(checkpoint))
        drives = open_drives(DriveOptions(folder=folder, capacity_bytes=1 << 26))
        config = RunConfig.of(active=active, session_memory=session_memory)
        metrics, limits = Metrics(), Limits(slots * context * 4, running=slots, idle=100)
        sessions = (sessions or SessionOptions()) if keep else None
        engine = open_engine(model, drives, config, limits.idle, 1, sessions)
        self.scheduler = Scheduler(engine, limits, metrics, drafts)
        self.scheduler.start()
        if keep:
            self.scheduler.with_sessions(lambda store: setattr(store.costs, "rates", ATTENDING_PAYS)).result(30)
        given = Settings("tiny", context - 1, context, Allowed(tenants or Tenants(), **settings))
        super().__init__(application(model, self.scheduler, metrics, given), patience or Patience(64))
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def complete(self, key="", **fields):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return self.client.post("/v1/completions", json={"model": "tiny", "temperature": 0, **fields}, headers=headers)

    def metric(self, name):
        lines = self.client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((name + " ", name + "{")))

    def close(self):
        self.client.close()
        super().close()


def refusals(answers):
    """The error documents in the bytes of answers. Each refusal must have one, in OpenAI's format."""
    found = []
    for part in re.split(rb"(?=HTTP/1\.1 \d{3} )", answers):
        status = STATUS.match(part)
        if status and int(status[1]) >= 400 and int(status[1]) != 499:
            error = json.loads(part.partition(b"\r\n\r\n")[2])["error"]
            assert set(error) == {"message", "type", "param", "code"}
            found.append(error)
    return found
