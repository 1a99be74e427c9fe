"""Runs a command whose stdin and stderr are a terminal, while its stdout stays the pipe it was.

For programs that ask the user only when there is one. Nothing is ever typed; what the terminal shows goes to our stderr.
SIGINT and SIGTERM are passed on; the exit code is the command's.

    python on_terminal.py COMMAND ARGS…
"""

import os
import pty
import signal
import subprocess
import sys

ours, theirs = pty.openpty()
child = subprocess.Popen(sys.argv[1:], stdin=theirs, stderr=theirs)
os.close(theirs)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda received, frame: child.send_signal(received))
while True:
    try:
        shown = os.read(ours, 4096)
    except OSError:  # the terminal is gone when its last user is
        break
    if not shown:
        break
    os.write(2, shown)
sys.exit(child.wait())
