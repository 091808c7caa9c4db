"""Runs the command of action.yml: the words of $COMMAND, split as a shell splits them and never run by one."""

import os
import shlex
import sys

words = shlex.split(os.environ["COMMAND"].replace("\\\n", " "))
if words[:1] == ["cudabench"]:
    words = words[1:]
os.execv(sys.executable, [sys.executable, "-m", "cudabench", *words])
