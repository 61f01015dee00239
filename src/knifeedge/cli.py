"""The command line: thin, and importing each verb's machinery only when that verb runs."""

import sys

import typer

from knifeedge.errors import KnifeEdgeError

app = typer.Typer(
    name="knifeedge",
    help="Train, score and compare models whose answers are yes or no.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def _root() -> None:
    """Train, score and compare models whose answers are yes or no."""


def main() -> None:
    """Run the command line; a user's mistake becomes one line on stderr and exit code 1."""
    try:
        app()
    except (KnifeEdgeError, ValueError, OSError) as error:
        print(f"knifeedge: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("knifeedge: interrupted", file=sys.stderr)
        sys.exit(130)
