"""The table of others' faults in docs/targets.md, made of the records of their workarounds.

usage: scripts/fixes [--write]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from aotpipe.core.fixes import Fix, records

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/targets.md"
BEGIN = "<!-- made by `scripts/fixes --write` -->"
END = "<!-- end of what `scripts/fixes` makes -->"
_ROOMS = ("aotpipe.backends.iree.fixes", "aotpipe.backends.xla.fixes")
_NAMES = {"iree-base-compiler": "IREE", "jaxlib": "XLA, jaxlib", "mesa": "Mesa", "metal": "Metal"}


def stages() -> Iterator[str]:
    """The packages of records."""
    for room in _ROOMS:
        for module in iter_modules(import_module(room).__path__, f"{room}."):
            if module.ispkg:
                yield module.name


def every_record() -> Iterator[tuple[str, Fix]]:
    """All records, each with its file."""
    for stage in stages():
        for fix in records(stage):
            yield f"{stage.removeprefix('aotpipe.').replace('.', '/')}/{fix.id.replace('-', '_')}.py", fix


def table() -> str:
    """The table, in Markdown."""
    rows = [
        "| whose fault, targets | what goes wrong | smallest program | what is done | upstream |",
        "| --- | --- | --- | --- | --- |",
    ]
    rows += [_row(path, fix) for path, fix in sorted(every_record(), key=lambda each: each[1].targets)]
    return "\n".join(rows)


def _row(path: str, fix: Fix) -> str:
    whose = f"{_NAMES[fix.package]} {fix.versions.removeprefix('==').removesuffix('.*')}".strip()
    said = f" (`{fix.diagnostic}`)" if fix.diagnostic else " (the compiler says nothing)"
    upstream = f"[{fix.upstream.rpartition('/')[2]}]({fix.upstream})" if fix.upstream else "none found"
    cells = [
        f"{whose}: {', '.join(f'`{target}`' for target in fix.targets)}",
        f"{fix.fault}{said}",
        fix.program,
        f"{fix.remedy} (`{path}`)",
        upstream,
    ]
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """docs/targets.md with the table as it is now."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(table())
