"""A dict of which only a run of the graph knows some keys: a batch whose optional keys may be missing.

The value of such a key is an `OptionalValue`. `in` gives its flag, `get` the `OptionalValue`, and `[key]` the
value, with an assert that it is there. What goes over all keys is refused: how many there are is a matter of
the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from aotpipe.canonicalize.values import optional_values, refusals, trace
from aotpipe.canonicalize.values.optional_values import OptionalValue

_NO_DEFAULT: Final = object()


class Partial(dict[Any, Any]):
    """See the module; `unsure` are the keys that may be missing.

    `**partial` gives the `OptionalValue`s, by which `of_keywords` knows the keys again.
    """

    def __init__(self, items: Any = (), unsure: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.unsure = set(unsure)

    def has(self, key: Any) -> Any:
        """`key in self`: a bool, or the flag that says so."""
        if not dict.__contains__(self, key):
            return False
        optional = self._unsure(key)
        return True if optional is None else optional_values.presence(optional, wanted=True)

    def _unsure(self, key: Any) -> OptionalValue | None:
        """The value of a key, if it may be missing."""
        value = dict.get(self, key)
        return (
            value
            if key in self.unsure and isinstance(value, OptionalValue) and not value.is_present
            else None
        )

    def _demanded(self, key: Any) -> Any:
        value = dict.__getitem__(self, key)
        if key in self.unsure and isinstance(value, OptionalValue):
            value.require_present(f"KeyError: {key!r}")
            return value.payload
        return value

    def __contains__(self, key: object) -> bool:
        found = self.has(key)
        if isinstance(found, bool):
            return found
        raise RuntimeError("data-dependent: whether a key is there is known to a run of the graph only")

    def __getitem__(self, key: Any) -> Any:
        return self._demanded(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value; an `OptionalValue` in place of None."""
        optional = self._unsure(key)
        if optional is None:
            return self._demanded(key) if dict.__contains__(self, key) else default
        if default is None:
            return optional
        return trace.operators().either(optional, lambda: optional.payload, lambda: default)

    def pop(self, key: Any, default: Any = _NO_DEFAULT) -> Any:
        """The value of a key that is missing from then on."""
        if default is _NO_DEFAULT or key not in self.unsure:
            found = self._demanded(key) if default is _NO_DEFAULT else dict.get(self, key, default)
        else:
            found = self.get(key, default)
        dict.pop(self, key, None)
        return found

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value, which is there from then on."""
        self[key] = self.get(key, default)
        return dict.__getitem__(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.unsure.discard(key)
        super().__setitem__(key, value)

    def copy(self) -> Partial:
        """A dict of the same keys and values."""
        return Partial(((key, dict.__getitem__(self, key)) for key in dict.__iter__(self)), self.unsure)

    def refill(self, items: dict[Any, Any]) -> None:
        """Hold other values of keys that are as unsure as before."""
        dict.clear(self)
        dict.update(self, items)

    def keys(self) -> Any:
        """What `in` is asked of."""
        return Keys(self)

    def items(self) -> Any:
        """All items, if all are there."""
        self._require_all()
        return {key: self._demanded(key) for key in dict.__iter__(self)}.items()

    def values(self) -> Any:
        """All values, if all are there."""
        self._require_all()
        return [self._demanded(key) for key in dict.__iter__(self)]

    def __len__(self) -> int:
        self._require_all()
        return super().__len__()

    def _require_all(self) -> None:
        if any(self._unsure(key) is not None for key in self.unsure):
            keys = ", ".join(map(repr, sorted(self.unsure, key=str)))
            raise refusals.refusal(
                f"which keys there are is known to a run of the graph only: {keys}",
                "ask for each key by its name: `key in batch`, `batch.get(key)`",
            )


class Keys:
    """`partial.keys()`."""

    __slots__ = ("of",)

    def __init__(self, of: Partial) -> None:
        self.of = of

    def __contains__(self, key: object) -> bool:
        return key in self.of

    def __iter__(self) -> Iterator[Any]:
        return iter(self.of)

    def __len__(self) -> int:
        return len(self.of)


def of_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """`**kwargs` of a function, of which some may be missing."""
    unsure = {key for key, value in kwargs.items() if isinstance(value, OptionalValue) and value.is_key}
    return Partial(kwargs, unsure) if unsure else kwargs
