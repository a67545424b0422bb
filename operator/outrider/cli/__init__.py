"""The command ``outrider``: one module a subcommand, each a thin face of what the packages beside it do."""
