"""``python -m wastenot`` is the program ``wastenot``."""

from wastenot.cli.main import main

if __name__ == "__main__":
    main()
