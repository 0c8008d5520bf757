"""`aotpipe check`: can a model be one program, and what becomes of it?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from aotpipe.cli import options, text


@click.command()
@options.model()
@click.option(
    "--sarif",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the result as SARIF 2.1.0, too.",
)
@options.as_json
@options.quiet
def check(
    *,
    model: str,
    options: dict[str, Any],
    sarif: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """List all that keeps MODEL from becoming one program, with the line, the reason and a fix.

    What Python's control flow becomes, what is kept as state and what is fixed at the build is said too. The
    exit code is 0 where nothing blocks, and 22 where something does.
    """
    from aotpipe.tools.check import check as checks

    checked = checks(model, **options)
    if sarif is not None:
        from aotpipe.runtime.store import typed_os_errors
        from aotpipe.tools.check.formats import to_sarif

        with typed_os_errors("the SARIF file", sarif):
            sarif.parent.mkdir(parents=True, exist_ok=True)
            sarif.write_text(json.dumps(to_sarif(checked), indent=2) + "\n", encoding="utf-8")
    if as_json:
        text.echo_json(checked.to_json())
    else:
        from aotpipe.tools.check.formats import render

        click.echo(render(checked, quiet=quiet))
    return checked.exit_code
