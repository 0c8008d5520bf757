"""Keeps count of graphs and their calls, for all threads of the process. Torch-free."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from aotpipe.errors import SourceLine
from aotpipe.tools.torch_compile.results import Counts, Graph


@dataclass(slots=True, kw_only=True)
class Account:
    """One graph's; only `Ledger` reads it."""

    number: int
    where: SourceLine | None
    ops: int
    status: str = "waiting"
    reason: str = ""
    hint: str = ""
    calls: int = 0
    eager: Counter[str] = field(default_factory=Counter)
    compile_s: float = 0.0
    ratio: float = 0.0
    islands: tuple[str, ...] = ()

    def compiled(self, *, compile_s: float, ratio: float, islands: tuple[str, ...] = ()) -> None:
        """It has a program."""
        self.status, self.compile_s, self.ratio, self.islands = "compiled", compile_s, ratio, islands

    def fell_back(self, reason: str, hint: str = "") -> None:
        """It runs eagerly from now on."""
        self.status, self.reason, self.hint = "eager", reason, hint


class Ledger:
    """The accounts of all graphs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accounts: list[Account] = []

    def open(self, where: SourceLine | None, ops: int) -> Account:
        """An account of a new graph."""
        with self._lock:
            account = Account(number=len(self._accounts) + 1, where=where, ops=ops)
            self._accounts.append(account)
            return account

    def counts(self) -> Counts:
        """What was counted up to now."""
        with self._lock:
            return Counts(graphs=tuple(map(_graph, self._accounts)))

    def reset(self) -> None:
        """Forget all; graphs that go on being called are not counted any more."""
        with self._lock:
            self._accounts = []


def _graph(account: Account) -> Graph:
    return Graph(
        number=account.number,
        where=account.where,
        ops=account.ops,
        status=account.status,
        reason=account.reason,
        hint=account.hint,
        calls=account.calls,
        eager_calls=account.eager.total(),
        reasons=tuple(sorted(account.eager.items())),
        compile_s=account.compile_s,
        ratio=account.ratio,
        islands=account.islands,
    )


LEDGER = Ledger()
"""Of this process."""
