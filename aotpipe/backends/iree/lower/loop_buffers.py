"""What a loop carries from trip to trip: tensors that have room, used in turns, and all others.

All functions emit at the current insertion point and location.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler.ir import Type, Value

from aotpipe.backends.iree.lower.region_types import Border, convert

Slots = list[Value | None]
"""Values by position; None where there is none or where it is not needed."""


class Carries:
    """The carries of a loop that is about to be written: makes their rooms.

    Args:
        border: How they cross.
        types: Their builtin types, None for one that is not needed.
    """

    def __init__(self, border: Border, types: Sequence[Type | None]) -> None:
        self._border = border
        self._types = types
        self._rooms = [None if wanted is None else border.room(wanted) for wanted in types]

    def own(self, values: Slots, crossed: Sequence[Value] = ()) -> Slots:
        """What is carried on, converted, each tensor with elements of its own.

        Args:
            values: The carries.
            crossed: Those that the trip was given first, packed; none before the first trip.
        """
        last = iter(crossed)
        owned: Slots = []
        for value, wanted, room in zip(values, self._types, self._rooms, strict=True):
            if value is None or wanted is None:
                owned.append(None)
                continue
            given = next(last, None)
            made = convert(value, wanted)
            owned += [room.own(made, given)] if room else self._border.own([made])
        return owned
