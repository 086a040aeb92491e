"""The program ``wastenot``, also as ``python -m wastenot``; a Ctrl-C while it is being loaded is one line, too."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from wastenot.cli.main import run

        code = run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = _INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
