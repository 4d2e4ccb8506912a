"""Run a command, and write the greatest memory of its processes into a file, in bytes.

    python -P recipes/lib/peak_memory.py FILE COMMAND…

It ends as the command does.
"""

import resource
import subprocess
import sys


def main():
    path, *command = sys.argv[1:]
    status = subprocess.run(command).returncode
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with open(path, "w", encoding="ascii") as stream:
        stream.write(f"{peak if sys.platform == 'darwin' else 1024 * peak}\n")
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
