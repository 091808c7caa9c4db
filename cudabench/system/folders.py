"""Finds the folder in which cudabench caches files."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path | None:
    """Return the cache folder: the one that CUDABENCH_CACHE names, else the platform's usual one for the user.

    It is None if CUDABENCH_CACHE is 'off'.
    """
    setting = os.environ.get("CUDABENCH_CACHE", "")
    if setting.lower() in ("off", "0", "no"):
        return None
    if setting:
        return Path(setting)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(os.path.join("~", ".cache"))
    return Path(base) / "cudabench"
