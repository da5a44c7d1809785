"""Plans that are kept, in SQLite. Every plan is written once, whole, with its parent: going back is going to the
parent, and a server that is killed loses nothing that was saved."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hulk.errors import HulkError, InputError
from hulk.view.document import Saved

_SCHEMA = """
CREATE TABLE IF NOT EXISTS plans (
    id TEXT PRIMARY KEY, parent TEXT, at REAL NOT NULL, how TEXT NOT NULL, title TEXT NOT NULL, cluster TEXT NOT NULL,
    steps TEXT NOT NULL, recipe BLOB NOT NULL, plan BLOB NOT NULL, document BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS plans_at ON plans (at);
CREATE TABLE IF NOT EXISTS extras (
    plan TEXT NOT NULL REFERENCES plans (id) ON DELETE CASCADE, kind TEXT NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (plan, kind)
);
"""
_VERSION = 1
_LISTED = 500


class NoSuchPlanError(HulkError):
    """A plan that is not in the history."""


class History:
    """The file of kept plans; may be used from any thread."""

    def __init__(self, path: str | Path, *, most: int) -> None:
        self._lock, self._most = threading.Lock(), most
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10.0)
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, _VERSION):
                raise InputError(f"a history of another version of Hulk ({found})", where=str(path))
            if found == 0 and self._db.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]:
                raise InputError("this database is not Hulk's", where=str(path), hint="name a new file")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA foreign_keys=ON")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={_VERSION}")
        except sqlite3.Error as error:
            raise InputError(f"cannot keep plans here: {error}", where=str(path)) from None

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            self._db.close()

    def add(self, made: Mapping[str, Any], parent: str | None) -> str:
        """Keep a plan (`hulk.serve.work.saved`); its id."""
        key = secrets.token_hex(8)
        row = (
            key, parent, time.time(), made["how"], made["title"], made["cluster"], json.dumps(made["steps"]),
            _packed(made["recipe"]), _packed(made["plan"]), _packed(made["document"]),
        )  # fmt: skip
        with self._lock:
            if self._db.execute("SELECT COUNT(*) FROM plans").fetchone()[0] >= self._most:
                raise InputError(f"the history holds {self._most:,} plans", hint="remove some that are not needed")
            self._db.execute("INSERT INTO plans VALUES (?,?,?,?,?,?,?,?,?,?)", row)
        return key

    def extend(self, key: str, kind: str, value: object) -> None:
        """Keep something more of a plan: its timeline, what would help, a comparison."""
        with self._lock:
            self._db.execute(
                "INSERT OR REPLACE INTO extras SELECT id, ?, ? FROM plans WHERE id = ?", (kind, _packed(value), key)
            )

    def plans(self) -> list[dict[str, Any]]:
        """What is kept, newest first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id, parent, at, how, title, cluster, steps FROM plans ORDER BY at DESC LIMIT ?", (_LISTED,)
            ).fetchall()
        return [
            {
                "id": key, "parent": parent, "when": at, "how": how, "title": title, "cluster": cluster,
                "jobs": list(steps := json.loads(text)), "steps": steps,
            }
            for key, parent, at, how, title, cluster, text in rows
        ]  # fmt: skip

    def document(self, key: str) -> dict[str, Any]:
        """What the page shows of a plan, with what was found out since it was made."""
        parent, at, how, blob = self._row(key, "parent, at, how, document")
        document: dict[str, Any] = _unpacked(blob)
        document["saved"] = Saved(id=key, parent=parent, when=at, how=how)
        with self._lock:
            extras = self._db.execute("SELECT kind, value FROM extras WHERE plan = ?", (key,)).fetchall()
        for kind, value in extras:
            found = _unpacked(value)
            if kind == "explanation":
                for job, words in document["words"]["jobs"].items():
                    words["would_help"] = [hint["text"] for hint in found["jobs"][job]["what_if"]]
            else:
                document[kind] = found
        return document

    def price(self, key: str) -> dict[str, Any]:
        """A plan's price, as it was when it was made."""
        found: dict[str, Any] = _unpacked(self._row(key, "document")[0])["price"]
        return found

    def inputs(self, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """A plan's recipe, and the plan file's JSON."""
        recipe, plan = self._row(key, "recipe, plan")
        return _unpacked(recipe), _unpacked(plan)

    def remove(self, key: str) -> None:
        """Forget a plan. Those that came of it stay."""
        self._row(key, "id")
        with self._lock:
            self._db.execute("DELETE FROM plans WHERE id = ?", (key,))

    def _row(self, key: str, columns: str) -> tuple[Any, ...]:
        with self._lock:
            query = f"SELECT {columns} FROM plans WHERE id = ?"  # noqa: S608  columns are names written above
            row: tuple[Any, ...] | None = self._db.execute(query, (key,)).fetchone()
        if row is None:
            raise NoSuchPlanError(f"no plan {key[:40]!r} is kept here")
        return row


def _packed(value: object) -> bytes:
    return zlib.compress(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"), 3)


def _unpacked(blob: bytes) -> Any:
    return json.loads(zlib.decompress(blob).decode("utf-8", "surrogatepass"))
