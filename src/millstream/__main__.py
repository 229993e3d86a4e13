"""Let ``python -m millstream`` be the command line."""

from __future__ import annotations

from millstream.cli.main import main

if __name__ == "__main__":
    main()
