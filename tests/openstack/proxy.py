"""A proxy between labctl and the cloud that kills labctl at a chosen request that changes something.

It kills at one of two moments: when the cloud has carried the request out and labctl has no answer yet,
or when the answer has been delivered and labctl has not been able to write it down. For the second,
labctl is stopped before it is given the answer, so that not one of its instructions runs in between.
"""

from __future__ import annotations

import http.client
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, NamedTuple

import yaml

from tests.openstack.configs import Places

Moment = Literal["carried out, not answered", "answered, not recorded"]
MOMENTS: tuple[Moment, ...] = ("carried out, not answered", "answered, not recorded")
PREFIXES = {"compute": "/v2.1", "network": "/v2.0"}
REQUEST_S = 60.0
_NOT_FORWARDED = frozenset({"connection", "transfer-encoding", "keep-alive"})


class Change(NamedTuple):
    """A request that changes something, and the status of its answer."""

    method: str
    path: str
    status: int


class Proxy:
    """Where labctl is to connect, what it has changed, and when it must die."""

    def __init__(self, places: Places) -> None:
        self._guard = threading.Lock()
        self._kill_at: tuple[int, Moment] | None = None
        self._victim: int | None = None
        self._begun = 0
        self.changes: list[Change] = []
        # A port for each service: they write addresses into their answers, which must lead here again.
        self.servers = {
            service: ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, places.ports[service]))
            for service in PREFIXES
        }

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.servers[service].server_address[1]}{PREFIXES[service]}"

    def forget(self) -> None:
        with self._guard:
            self.changes.clear()
            self._begun = 0
            self._kill_at = None

    def kill(self, position: int, moment: Moment) -> None:
        """At the request of this position, counted from 1 since `forget`."""
        self._kill_at = (position, moment)

    def aim(self, pid: int) -> None:
        self._victim = pid

    def begin(self) -> Moment | None:
        """A request that changes something arrives: shall it be the last?"""
        with self._guard:
            self._begun += 1
            if self._kill_at is not None and self._kill_at[0] == self._begun:
                return self._kill_at[1]
            return None

    def end(self, change: Change) -> None:
        with self._guard:
            self.changes.append(change)

    def is_idle(self) -> bool:
        """Whatever has reached the cloud has been carried out."""
        with self._guard:
            return self._begun == len(self.changes)

    def signal(self, number: signal.Signals) -> None:
        assert self._victim is not None
        os.kill(self._victim, number)

    def write_clouds(self, source: Path, target: Path) -> None:
        """The same clouds, with compute and network behind the proxy."""
        document = yaml.safe_load(source.read_text())
        for cloud in document["clouds"].values():
            cloud |= {f"{service}_endpoint_override": self.url(service) for service in PREFIXES}
        target.write_text(yaml.safe_dump(document))


def _handler(proxy: Proxy, port: int) -> type[_Handler]:
    return type("Handler", (_Handler,), {"proxy": proxy, "port": port})


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    port: int
    """Where the service itself listens."""

    def do_GET(self) -> None:
        self._answer(*self._forward())

    def do_POST(self) -> None:
        moment = self.proxy.begin()
        status, headers, body = self._forward()
        self.proxy.end(Change(self.command, self.path, status))
        if moment == "carried out, not answered":
            self.proxy.signal(signal.SIGKILL)
            return
        if moment == "answered, not recorded":
            self.proxy.signal(signal.SIGSTOP)
        try:
            self._answer(status, headers, body)
        finally:
            if moment is not None:
                self.proxy.signal(signal.SIGKILL)

    # The names are the base class's, which looks for them.
    do_PUT = do_POST  # noqa: N815
    do_DELETE = do_POST  # noqa: N815

    def _forward(self) -> tuple[int, list[tuple[str, str]], bytes]:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_FORWARDED}
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_S)
        try:
            upstream.request(self.command, self.path, body, headers)
            response = upstream.getresponse()
            return response.status, response.getheaders(), response.read()
        except (OSError, http.client.HTTPException) as error:
            return http.HTTPStatus.BAD_GATEWAY, [], str(error).encode()
        finally:
            upstream.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        try:
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in {*_NOT_FORWARDED, "content-length", "date", "server"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            # The other side has been killed meanwhile, which is what we are here for.
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        """Nobody reads it."""


@contextmanager
def proxied(places: Places) -> Iterator[Proxy]:
    proxy = Proxy(places)
    threads = [
        threading.Thread(target=server.serve_forever, daemon=True) for server in proxy.servers.values()
    ]
    for thread in threads:
        thread.start()
    try:
        yield proxy
    finally:
        for server in proxy.servers.values():
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()
