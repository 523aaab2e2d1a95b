"""`/metrics` over HTTP, on this machine only."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headwater.engine.home import Home
from headwater.engine.status.metrics import collect
from headwater.errors import MachineError
from headwater.observe.exposition import CONTENT_TYPE, text

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"  # metrics contain table names; a proxy decides who may see them elsewhere
PATH = "/metrics"
SILENCE_S = 10.0  # a silent peer is disconnected


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs a scraper that hangs up early, which is not our fault; the library would print a stack trace."""
        log.debug("a scrape ended early", exc_info=True)


class MetricsEndpoint:
    """A running endpoint; `close()` stops it. `port` is the given one, or for 0 a free one."""

    def __init__(self, port: int, page: Callable[[], str]) -> None:
        try:
            self._server = _Server((LOOPBACK, port), _handler(page))
        except OSError as e:
            raise MachineError(
                "server.port",
                f"cannot serve metrics on port {port}: {e.strerror}",
                "Choose another --metrics-port, or stop the process that uses it.",
            ) from e
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}{PATH}"

    def close(self) -> None:
        """Stops serving and frees the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@contextmanager
def observed(home: Home, port: int) -> Iterator[None]:
    """Serves the home's metrics inside the block, unless the port is 0."""
    if not port:
        yield
        return
    endpoint = MetricsEndpoint(port, lambda: text(collect(home, home.live.server)))
    try:
        yield
    finally:
        endpoint.close()


def _handler(page: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    """A handler that answers GET and HEAD for one path with the current page."""

    class Handler(BaseHTTPRequestHandler):
        timeout = SILENCE_S
        server_version = "headwater"
        sys_version = ""

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, *, body: bool) -> None:
            if self.path.split("?")[0] != PATH:
                self.send_error(404, explain=f"metrics are at {PATH}")
                return
            try:
                content = page().encode()
            except Exception as e:  # the scraper must see the failure, and the server must continue
                self.send_error(500, explain=type(e).__name__)
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing: scrapes are routine."""

    return Handler
