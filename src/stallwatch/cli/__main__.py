"""``python -m stallwatch.cli``, for where the ``stallwatch`` command is not on the path."""

from stallwatch.cli.main import main

raise SystemExit(main())
