"""Write the golden bundle of the current schema: `python -m tests.golden.make`.

A bundle that is there is kept: it is what a release wrote, and later releases must read it. A new one is made
only when the schema changes, before the first release that writes it.
"""

from __future__ import annotations

from pathlib import Path

from aotpipe.runtime.bundle import manifest
from tests.unit.runtime.bundle import samples

FOLDER = Path(__file__).parent


def main() -> None:
    out = FOLDER / f"schema-{manifest.SCHEMA}"
    if out.exists():
        raise SystemExit(f"{out} is there, and is kept; remove it to make it anew")
    samples.packed(out)
    print(out)


if __name__ == "__main__":
    main()
