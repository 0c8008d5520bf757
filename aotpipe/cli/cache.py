"""`aotpipe cache`: look at the store, or empty it."""

from __future__ import annotations

import click

from aotpipe.cli import options, text


@click.group()
def cache() -> None:
    """Look at or empty the cache of stage results.

    AOTPIPE_CACHE names its folder, AOTPIPE_CACHE_SIZE its cap (10GB). It can be removed at any time.
    """


@cache.command("ls")
@options.as_json
def list_entries(*, as_json: bool) -> None:
    """Show what the cache holds, by kind."""
    from aotpipe.core.units import size
    from aotpipe.runtime.store import Store

    store = Store.default()
    usage = store.usage()
    total = sum(row.size_bytes for row in usage)
    if as_json:
        kinds = {row.kind: {"entries": row.entries, "size_bytes": row.size_bytes} for row in usage}
        text.echo_json(
            {"path": str(store.root), "max_bytes": store.max_bytes, "size_bytes": total, "kinds": kinds}
        )
        return
    rows = [(row.kind, str(row.entries), size(row.size_bytes)) for row in usage]
    click.echo(text.table(("kind", "entries", "size"), rows))
    click.echo(f"\n{size(total)} of {size(store.max_bytes)} in {store.root}")


@cache.command("size")
@options.as_json
def show_size(*, as_json: bool) -> None:
    """Print how many bytes the cache holds."""
    from aotpipe.runtime.store import Store

    total = sum(row.size_bytes for row in Store.default().usage())
    if as_json:
        text.echo_json({"size_bytes": total})
    else:
        click.echo(total)


@cache.command("clear")
@options.as_json
def clear(*, as_json: bool) -> None:
    """Remove every entry."""
    from aotpipe.core.units import size
    from aotpipe.runtime.store import Store

    freed = Store.default().clear()
    if as_json:
        text.echo_json({"freed_bytes": freed})
    else:
        click.echo(f"freed {size(freed)}")
