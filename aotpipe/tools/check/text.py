"""A `Checked` for people: diagnostics with their source lines and carets, then what is rewritten and kept."""

from __future__ import annotations

from collections.abc import Iterator

from aotpipe.tools.check.diagnostics import SEVERITIES, Checked, Diagnostic, Severity
from aotpipe.tools.check.source_ranges import Place


def render(checked: Checked, *, quiet: bool = False) -> str:
    """The whole text; without notes, rewrites and state where it is to be quiet."""
    parts = [
        "\n".join(diagnostic(each)) for each in checked.diagnostics if not (quiet and each.severity == "note")
    ]
    if quiet:
        return "\n\n".join([*parts, summary(checked)])
    if checked.rewrites:
        rows = [
            f"  {each.place.where}  {each.what} -> {each.into}" + _of(each.entry_point, checked)
            for each in checked.rewrites
        ]
        parts.append("\n".join(["rewritten into the graph:", *rows]))
    for name, signature in checked.signatures.items():
        if signature.state:
            parts.append("\n".join([f"state of {name}:", *(f"  {leaf}" for leaf in signature.state)]))
    return "\n\n".join([*parts, summary(checked)])


def _of(entry_point: str, checked: Checked) -> str:
    return f" ({entry_point})" if len(checked.signatures) > 1 and entry_point else ""


def summary(checked: Checked) -> str:
    """One line: how many of each severity, and what that means."""
    counts = [_count(checked, severity) for severity in SEVERITIES]
    said = ", ".join(filter(None, counts)) or "nothing to say"
    verdict = "becomes one program" if checked.ok else "does not become one program as it is"
    return f"{checked.name} {verdict}: {said} ({checked.wall_s:.1f} s)"


def _count(checked: Checked, severity: Severity) -> str:
    word = "obstacle" if severity == "error" else severity
    count = sum(each.severity == severity for each in checked.diagnostics)
    return f"{count} {word}{'s' if count != 1 else ''}" if count else ""


def diagnostic(each: Diagnostic) -> Iterator[str]:
    """The lines of one diagnostic."""
    column = f":{each.place.column}" if each.place and each.where else ""
    place = f"{each.where}{column}: " if each.where else ""
    yield f"{place}{each.severity}[{each.code}]: {each.message}"
    if each.place is not None and each.place.text:
        yield from _excerpt(each.place)
    yield from (f"  {line}" for line in each.reason.splitlines())
    if each.history:
        label = "called from" if each.code == "model-raises" else "came from"
        for step in each.history:
            yield f"  {label}: {step.what}" + (f" at {step.place.where}" if step.place else "")
    if each.fix is not None:
        how = (
            f"executed: eager's answers on {each.fix.calls} calls, and no obstacle"
            if each.fix.verified
            else "not executed"
        )
        yield f"  fix ({how}):"
        yield f"    {each.fix.place.line} | {each.fix.line.strip()}"
    if each.hint:
        yield f"  hint: {each.hint}"


def _excerpt(place: Place) -> Iterator[str]:
    text = place.text.expandtabs(1)
    end = place.end_column if place.end_line == place.line else len(text) + 1
    number = str(place.line)
    yield f"  {number} | {text}"
    yield f"  {' ' * len(number)} | {' ' * (place.column - 1)}{'^' * max(end - place.column, 1)}"
