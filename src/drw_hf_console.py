"""The console script ``drw-hf``. It is no part of the package, so that ``--help`` does not wait for torch."""


def main() -> None:
    """Run a command."""
    from drw_hf.cli import main as run

    run()
