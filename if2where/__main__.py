"""``python -m if2where``."""

from if2where.cli import main

if __name__ == "__main__":
    main()
