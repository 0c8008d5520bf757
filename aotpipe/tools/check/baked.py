"""What a program fixes that eager would vary: arguments and keys, random numbers, the clock, attributes.

Each diagnostic is of something that was seen to happen: an effect of a run, an attribute that two calls in a
row changed, an input whose change changed eager's answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aotpipe.canonicalize import specialization
from aotpipe.core.stages import CanonicalEntry
from aotpipe.model import source_ranges
from aotpipe.model.source_ranges import Place
from aotpipe.tools.check.diagnostics import Diagnostic
from aotpipe.tools.check.eager_runs import Observed
from aotpipe.validate.eager import side_effects
from aotpipe.validate.eager.side_effects import CONTAINERS, Effect


def effects(observed: Observed) -> Iterator[Diagnostic]:
    """What the model's code does besides tensors."""
    seen: set[tuple[str, Place]] = set()
    for effect in (*observed.effects.values(), *side_effects.numpy_draws(observed.reached)):
        if effect.kind not in side_effects.DESCRIPTIONS:
            continue
        code, message, hint = side_effects.DESCRIPTIONS[effect.kind]
        if (code, effect.place) not in seen:
            seen.add((code, effect.place))
            said = message.format(effect.place.expression or effect.name)
            yield Diagnostic.of(code, said, hint=hint, place=effect.place)


def attributes(observed: Observed, kept: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Attributes that calls change, with the lines that do: kept as state, or fixed.

    `kept` gives of an attribute's path the name of the state that holds it.
    """
    for path, values in observed.changed.items():
        lines = _writing(path, observed)
        shown = " -> ".join(
            str(value) for value in values[:3] if isinstance(value, bool | int | float | str | None)
        )
        was = f" ({shown} in two calls)" if shown and len(shown) < 60 else ""
        name = path if "." in path else f"self.{path}"
        state = kept.get(path)
        code = "state-becomes-buffer" if state else "baked-attribute"
        message = (
            f"`{name}` changes in each call{was}: it is kept as the state `{state}`"
            if state
            else f"`{name}` changes in each call{was}: the program keeps its first value"
        )
        hint = "" if state else _as_state(path, values)
        for place in lines or (None,):
            yield Diagnostic.of(code, message, hint=hint, place=place)


def _as_state(path: str, values: Sequence[object]) -> str:
    """What to write so that a program keeps an attribute."""
    if all(isinstance(each, bool | int | float) for each in values):
        return f"make it a buffer: self.register_buffer({path.rpartition('.')[2]!r}, torch.tensor(...))"
    return "a program keeps tensors and numbers: keep what answers depend on as such"


def _writing(path: str, observed: Observed) -> list[Place]:
    module, _, attribute = path.rpartition(".")

    def is_written(effect: Effect) -> bool:
        owner = observed.owners.get(id(effect.owner))
        itself = effect.name == attribute and owner == module and not isinstance(effect.owner, CONTAINERS)
        return effect.kind == "write" and (owner == path or itself)

    found = [effect for effect in observed.effects.values() if is_written(effect)]
    found = found or [e for e in side_effects.self_writes(observed.reached) if e.name == attribute]
    places = dict.fromkeys(effect.place for effect in found)
    return sorted(places, key=lambda place: (place.path, place.line))


def fixed(entry: CanonicalEntry) -> Iterator[Diagnostic]:
    """What `specialization` finds, with its places: numbers, what is left out, keys that are looked for."""
    for found in (*specialization.numbers(entry), *specialization.asks(entry)):
        place, method = None, found.method
        if method is not None:
            at = found.node or method.definition
            place = source_ranges.of_node(method.path, at, method.name)
        yield Diagnostic.of(found.code, found.message, hint=found.hint, place=place, entry_point=entry.name)
