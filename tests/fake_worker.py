"""A worker without a GPU: each case's kernel says how it ends. Run by the session in a process of its own."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing.connection import Connection

from cudabench.errors import OutOfMemory
from cudabench.measure.context import describe
from cudabench.measure.session import Finished, Job, Refused, Started, Working
from cudabench.measure.worker import printed_bytes
from cudabench.records.results import DeviceInfo

job: Job = Connection(int(sys.argv[1]), writable=False).recv()
channel = Connection(int(sys.argv[2]), readable=False)
if job.cases[0].kernel == "no-start":
    print("the driver is asleep", file=sys.stderr)
    os._exit(7)
channel.send(Started(DeviceInfo("Fake", "cuda", "9.0", index=job.index)))
for case in job.cases:
    channel.send(Working(case.kernel, "timing", 0.5))
    print(f"printed by {case.kernel}", flush=True)
    tempfile.mkdtemp()
    print("library noise", file=sys.stderr, flush=True)
    if case.kernel == "dies":
        os._exit(9)
    if case.kernel == "hangs":
        time.sleep(60)
    if case.kernel == "refuses":
        channel.send(Refused(OutOfMemory("too large")))
        break
    spoils = case.kernel == "spoils"
    result = describe(case, "cuda:0")
    result = replace(result, status="failed") if spoils else result
    channel.send(Finished(result, context_lost=spoils, printed=printed_bytes()))
    if spoils:
        break
os._exit(0)
