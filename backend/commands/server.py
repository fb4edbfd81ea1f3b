"""serve, demo and db upgrade: start what runs."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from backend import logs
from backend.api.door import Door
from backend.app import create_app
from backend.auth import is_loopback_address
from backend.clock import SystemClock
from backend.commands.alone import take_alone
from backend.commands.recording import RecordError, recording
from backend.identity.deeds import ensure_admin
from backend.registry import Parts, build
from backend.settings import Cluster, Incidents, Policy, Server, Settings, SettingsError, Store, load
from backend.settings_counting import Reliability
from backend.simulate.demo import EVERY_S, Simulation, live
from backend.simulate.poster import Poster
from backend.simulate.source import SimulatedSource
from backend.store import people
from backend.store.engine import StoreError, migrate, open_store
from backend.tracing import NoTracing
from detectors.catalogue import TableError

DEMO_PERSON = "demo"


def settings_of(path: Path | None, port: int | None = None) -> Settings:
    """The configuration, with the port of the command line on top. Raises SettingsError."""
    settings = load(path, os.environ)
    if port is None:
        return settings
    settings.origins["server.port"] = "command line"
    return settings.model_copy(update={"server": settings.server.model_copy(update={"port": port})})


def serve(arguments: argparse.Namespace) -> int:
    try:
        settings = settings_of(arguments.config, arguments.port)
        lock = take_alone(settings.store.folder) if arguments.role != "api" else nullcontext()
        listener = listen(settings.server)
        parts = build(with_port(settings, listener), SystemClock(), role=arguments.role)
        begun(parts)
    except (SettingsError, StoreError, TableError, NoTracing, OSError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    say_who_may_sign_in(parts)
    with lock:
        try:
            with recording(parts, arguments.record, arguments.record_mib):
                return run(parts, listener)
        except RecordError as error:
            listener.close()
            parts.store.close()
            print(f"watchkeeper: {error}", file=sys.stderr)
            return 1


def begun(parts: Parts) -> None:
    """Off loopback somebody must be able to administer it, or whoever comes first would find it open. Raises OSError
    with the fix."""
    settings = parts.settings
    if is_loopback_address(settings.server.host) or any(by.admin for by in (settings.oidc, settings.proxy) if by):
        return
    try:
        known = ensure_admin(parts.store, settings.security, parts.clock.now())
    except ValueError as error:
        raise OSError(f"[security] admin_password cannot be used: {error}.") from error
    if not known:
        raise OSError(
            f"nobody may administer this server, and {settings.server.host} is open to others. "
            "Run watchkeeper users add NAME --role admin with the same configuration, or set [security] "
            "admin_password_file, and start again."
        )


def say_who_may_sign_in(parts: Parts) -> None:
    with parts.store.read() as session:
        known = people.users(session)
    if not known:
        same = "with the same --config" if parts.settings.store.url else "in the same folder"
        print(f"Nobody can sign in yet: watchkeeper users add NAME --role approver, {same}.", file=sys.stderr)


def upgrade(arguments: argparse.Namespace) -> int:
    try:
        settings = settings_of(arguments.config)
        store = open_store(settings.store.url, settings.store.folder)
        migrate(store)
    except (SettingsError, StoreError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    print(f"{store.where} is up to date.")
    store.close()
    return 0


def listen(server: Server) -> socket.socket:
    """A bound socket, so that the port is known (0 = a free one) before anything else starts. Raises OSError."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    # The protocol is named: only then asyncio sets TCP_NODELAY, without which each answer waits 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((server.host, server.port))
    except (OSError, UnicodeError) as error:
        listener.close()
        said = getattr(error, "strerror", None) or "it is no name of a host"
        raise OSError(f"cannot listen on {server.host}:{server.port}: {said}. {_fix(error)}") from error
    return listener


def _fix(error: Exception) -> str:
    """How to mend a socket that could not be bound."""
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return "Is another server there? Set another [server] port, or try --port."
        case errno.EACCES:
            return "Set [server] port to one above 1023."
    return "Set [server] host to an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them."


def with_port(settings: Settings, listener: socket.socket) -> Settings:
    port = listener.getsockname()[1]
    return settings.model_copy(update={"server": settings.server.model_copy(update={"port": port})})


def encrypted(server: Server) -> dict[str, Any]:
    """What uvicorn takes to speak https; with authorities of clients, nobody without their certificate is let in."""
    if server.tls_cert is None:
        return {}
    found: dict[str, Any] = {
        "ssl_certfile": str(server.tls_cert),
        "ssl_keyfile": server.tls_key and str(server.tls_key),
    }
    if server.tls_client_ca is not None:
        found |= {"ssl_ca_certs": str(server.tls_client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return found


class PromptServer(uvicorn.Server):
    """Tells open streams to end as soon as it is asked to stop, so that an open page does not delay it."""

    on_exit: Callable[[], None] = staticmethod(lambda: None)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.on_exit()
        super().handle_exit(sig, frame)


def run(parts: Parts, listener: socket.socket, on_ready: Callable[[], None] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C, then stop the loops and close the store."""
    logs.begin(parts.settings.server.log)
    host, port = listener.getsockname()[:2]
    config = uvicorn.Config(
        create_app(parts, on_ready=on_ready),
        http=Door,
        log_level="warning",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=3,
        **encrypted(parts.settings.server),
    )
    server = PromptServer(config)
    server.on_exit = parts.changes.close
    scheme = "https" if config.is_ssl else "http"
    print(f"Watchkeeper ({parts.settings.mode}) listens on {scheme}://{host}:{port}/", flush=True)
    if threading.current_thread() is threading.main_thread():
        # uvicorn raises the signal once more when it has stopped: what stands behind it must run then, too
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        parts.store.close()
    return 0


def demo_settings(folder: Path, port: int) -> Settings:
    """No config: SQLite in the folder, propose mode, a clock that suits somebody who watches for minutes."""
    return Settings(
        mode="propose",
        server=Server(port=port),
        store=Store(folder=folder),
        cluster=(Cluster(name="demo", interval_s=EVERY_S, lateness_s=EVERY_S, backend="simulated"),),
        incidents=Incidents(hold_s=30.0),
        policy=Policy(max_out_share=0.15, cooldown_s=120.0),
        reliability=Reliability(every_s=10.0),
    )


def make_folder(folder: Path) -> None:
    """Raises OSError that says how to mend it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"the folder {folder} cannot be made: {error.strerror}. Name another with --folder.") from error


def demo(arguments: argparse.Namespace) -> int:
    """A seeded cluster that posts to the public ingest routes of this very server."""
    clock = SystemClock()
    try:
        make_folder(arguments.folder)
        lock = take_alone(arguments.folder)
        settings = demo_settings(arguments.folder, arguments.port)
        listener = listen(settings.server)
        settings = with_port(settings, listener)
        simulation = Simulation(arguments.seed, clock, arguments.folder)
        backends = {"demo": simulation.backend}
        scheduler = {"demo": ((SimulatedSource(simulation.backend), EVERY_S),)}
        parts = build(
            settings, clock, backends=backends, more_sources=scheduler, simulated=True, demo_person=DEMO_PERSON
        )
    except (StoreError, OSError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    with parts.store.write() as session:
        people.ensure_user(session, DEMO_PERSON, "approver", clock.now())
    poster = Poster(f"http://127.0.0.1:{settings.server.port}", simulation.world.site)
    stop = threading.Event()
    thread = threading.Thread(target=keep_living, args=(simulation, poster, stop), name="simulation", daemon=True)
    try:
        return run(parts, listener, on_ready=thread.start)
    finally:
        stop.set()
        thread.join(timeout=5)
        simulation.save()
        poster.close()
        lock.close()


def keep_living(simulation: Simulation, poster: Poster, stop: threading.Event) -> None:
    """The demo's own loop; the poster never raises for a server that is away."""
    while not stop.is_set():
        stop.wait(live(simulation, poster))
