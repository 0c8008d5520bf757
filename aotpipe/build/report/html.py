"""A report as one HTML page that needs nothing but itself."""

from __future__ import annotations

import threading
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from aotpipe.build.report.contents import Report
from aotpipe.core.units import count, duration, share, size

if TYPE_CHECKING:
    import jinja2

_lock = threading.Lock()


def render(report: Report) -> str:
    """The page's text."""
    estimates = [(row.target, each) for row in report.targets for each in row.estimates if each.memory_bytes]
    return template().render(report=report, estimates=estimates)


def template() -> jinja2.Template:
    """The page without its report; compiled once, whoever asks first."""
    with _lock:
        return _compiled()


@cache
def _compiled() -> jinja2.Template:
    # Late: a host that serves bundles has no jinja2.
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(count=count, duration=duration, share=share, size=size)
    source = resources.files("aotpipe.build.report").joinpath("report.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source)
