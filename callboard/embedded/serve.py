"""The embedded model's process: ``python -m callboard.embedded.serve --weights PATH --port P``.

Serves the weights by llama.cpp (the package ``xllamacpp``) as an OpenAI-compatible endpoint on 127.0.0.1,
and says so with one JSON line on stdout once it answers: ``{"port": ..., "pid": ..., "model": ..., "ready":
true}``. The key that it demands comes in the environment, never on the command line, where every user could
read it. It lives in the supervision tree as an external program and ends with whoever started it. Nothing
imports it but a test.

Exit codes: 0 after SIGTERM or SIGINT, or when the parent is gone; 2 when it could not start, with the
reason on stderr in one line.
"""

from __future__ import annotations

import argparse
import ctypes
import http.client
import importlib.resources
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from callboard.embedded.weights import CONTEXT_TOKENS, MODEL_NAME

HOST = "127.0.0.1"
ENV_KEY = "CALLBOARD_EMBEDDED_KEY"
MAX_THREADS = 4
PROMPT_CACHE_MIB = 256
READY_WITHIN_S = 120.0
ASK_AGAIN_S = 0.1
LOOK_AT_PARENT_S = 1.0
_PR_SET_PDEATHSIG = 1


class StartError(Exception):
    """The model cannot be served; the message says why and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal comes or the parent is gone."""
    parent = os.getppid()
    options = _parser().parse_args(arguments)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        die_with_parent(parent)
        server = start(options.weights, options.port, os.environ.get(ENV_KEY, ""))
        wait_until_it_answers(server.port, stopping)
    except StartError as fault:
        sys.stderr.write(f"embedded model: {fault}\n")
        return 2
    ready = {"port": server.port, "pid": os.getpid(), "model": MODEL_NAME, "ready": True}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    while not stopping.wait(LOOK_AT_PARENT_S) and os.getppid() == parent:
        pass
    server.close()
    return 0


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; StartError if it has."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise StartError(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        raise StartError("the parent process is gone already")


class LlamaServer:
    """llama.cpp's HTTP server on threads of this process; ``port`` is the one it listens on."""

    def __init__(self, server: Any, port: int) -> None:
        self._server: Any = server
        self.port = port

    def close(self) -> None:
        """Stop serving and free the model."""
        self._server = None


def start(weights: Path, port: int, key: str) -> LlamaServer:
    """Load the weights (some seconds) and listen; ``port`` 0 takes a free one. Raises StartError."""
    if not key:
        raise StartError(f"set {ENV_KEY} to the key that clients must send")
    if not weights.is_file():
        raise StartError(f"there is no file {weights}; fetch the weights with: callboard model pull")
    # Before the import: idle OpenMP threads that spin starve the working ones on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import xllamacpp
    except ImportError as fault:
        raise StartError(
            f"the extra 'local' is not installed ({fault}); run: pip install 'callboard[local]'"
        ) from fault
    port = port or _free_port()
    try:
        server = xllamacpp.Server(_parameters(xllamacpp, weights, port, key))
    except (RuntimeError, ValueError) as fault:
        raise StartError(f"llama.cpp could not serve {weights} on port {port}: {fault}") from fault
    return LlamaServer(server, port)


def wait_until_it_answers(port: int, stopping: threading.Event) -> None:
    """Ask for ``/health`` until it says yes; StartError after READY_WITHIN_S, or once ``stopping`` is set."""
    give_up_at = time.monotonic() + READY_WITHIN_S
    while not _is_healthy(port):
        if time.monotonic() > give_up_at:
            raise StartError(f"llama.cpp does not answer on port {port} after {READY_WITHIN_S:g} s")
        if stopping.wait(ASK_AGAIN_S):
            raise StartError("stopped while the model was loading")


def _parameters(xllamacpp: Any, weights: Path, port: int, key: str) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {MODEL_NAME}
    parameters.hostnames = [HOST]
    parameters.port = port
    parameters.api_keys = [key]
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    threads = min(MAX_THREADS, len(os.sched_getaffinity(0)))
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.cache_ram_mib = PROMPT_CACHE_MIB
    parameters.no_extra_bufts = True
    parameters.offline = True
    parameters.ui = False
    parameters.endpoint_slots = False
    parameters.cors_origins = ""
    parameters.chat_template = importlib.resources.files(__package__).joinpath("tools.jinja").read_text()
    return parameters


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m callboard.embedded.serve", description=main.__doc__)
    parser.add_argument("--weights", type=Path, required=True, help="the GGUF file")
    parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1; 0 takes a free one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
