"""The program ``wastenot``, also as ``python -m wastenot``; a Ctrl-C while it is being loaded is one line, too."""

import gc
import sys

from wastenot.core.loading import end_loading

_INTERRUPTED = 130
_OBJECTS_MADE = 50_000  # before Python looks for cyclic garbage, of which commands make little: by default at 700


def main() -> None:
    """Run the command line and exit with its code."""
    gc.set_threshold(_OBJECTS_MADE)
    try:
        from wastenot.cli.main import run

        end_loading()
        code = run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        # Where the Ctrl-C came while a string was evaluated, as a class of named tuples is, Python would end by the signal.
        exec("")
    sys.exit(code)


if __name__ == "__main__":
    main()
