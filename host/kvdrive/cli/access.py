"""Who may ask a server: its keys and origins, checked before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kvdrive.errors import InputError

if TYPE_CHECKING:
    from kvdrive.server.tenants import Tenants


@dataclass(frozen=True)
class Keys:
    """`--key`, `--keys` and `--tenant` of `kvdrive serve`."""

    key: str
    file: Path | None
    tenant: str


def tenants_of(host: str, keys: Keys, origins: Sequence[str], *, open_metrics: bool) -> Tenants:
    """Whose the keys are. Raises InputError for a server that cannot be, or that all of the network could ask."""
    try:
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise InputError("serving needs more packages: pip install 'kvdrive[serve]'") from error
    from kvdrive.server.local import check_origin, own_machine

    tenants = _tenants(keys.key, keys.file, keys.tenant)
    for origin in origins:
        check_origin(origin)
    if not tenants.asks and not own_machine(host):
        raise InputError(f"{host} can be reached from elsewhere: set KVDRIVE_API_KEY (or --key, or --keys) first")
    if open_metrics and not tenants.asks:
        raise InputError("--open-metrics goes with --key or --keys: without a key, all of this machine read /metrics")
    return tenants


def _tenants(key: str, keys: Path | None, tenant: str) -> Tenants:
    """Whose the keys are. Raises InputError."""
    from kvdrive.server.tenants import Tenants, read_keys

    if keys is None:
        return Tenants([(key, tenant)] if key else [], tenant)
    if key:
        raise InputError("--key (or KVDRIVE_API_KEY) and --keys exclude each other: write all keys into the file")
    if tenant:
        raise InputError("--tenant is for a server with one key: --keys names the tenant of each key")
    if keys.stat().st_mode & 0o077:
        typer.echo(f"kvdrive: other users of this machine can read {keys}: chmod 600 {keys}", err=True)
    return Tenants(read_keys(keys))
