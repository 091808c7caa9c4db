"""A process that runs command lines of the `cudabench` on its path, each in a fork, so that imports happen once.

It reads a JSON list of words per line, and answers with a JSON list of exit code, standard output and standard error.
If the first word ends with .py, it runs that script in place of the command.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import sys
import tempfile
import threading
import traceback
from contextlib import suppress

import cudabench

for module in pkgutil.walk_packages(cudabench.__path__, "cudabench."):
    if not module.name.endswith("__main__") and not module.ispkg:
        with suppress(ImportError):  # an optional package is missing
            importlib.import_module(module.name)
for name in ("jinja2", "matplotlib.pyplot", "elftools.elf.elffile", "rich.table"):
    with suppress(ImportError):
        importlib.import_module(name)

gc.freeze()
print(json.dumps(cudabench.__file__), flush=True)
for line in sys.stdin:
    words = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = ["cudabench", *words]
            end = 0
            try:
                if words and words[0].endswith(".py"):
                    sys.argv = words
                    runpy.run_path(words[0], run_name="__main__")
                else:
                    runpy.run_module("cudabench", run_name="__main__", alter_sys=True)
            except SystemExit as exit:
                end = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
            except BaseException:
                traceback.print_exc()
                end = 1
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            gc.collect()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end)  # a normal exit with so many modules takes a quarter of a second
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        texts = [stream.read().decode(errors="replace") for stream in (out, err)]
    print(json.dumps([code, *texts]), flush=True)
