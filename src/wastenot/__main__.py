"""The program ``wastenot``, also as ``python -m wastenot``; a Ctrl-C while it is being loaded is one line, too."""

import sys

from wastenot.core.loading import end_loading

_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with its code."""
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
