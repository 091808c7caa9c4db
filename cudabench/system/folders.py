"""Where this tool keeps what can be made again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path | None:
    """Return the folder for what can be made again; None where CUDABENCH_CACHE is 'off'.

    CUDABENCH_CACHE names another one; else it is the user's cache folder by the platform's custom.
    """
    wanted = os.environ.get("CUDABENCH_CACHE", "")
    if wanted.lower() in ("off", "0", "no"):
        return None
    if wanted:
        return Path(wanted)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(os.path.join("~", ".cache"))
    return Path(base) / "cudabench"
