"""The command line: a thin file a verb, importing its machinery only when it runs."""

import os
import signal
import sys
from typing import Annotated, Any, NoReturn

import typer

from knifeedge.cli import data
from knifeedge.cli.calibrate import calibrate
from knifeedge.cli.console import tell_interrupts, warnings_as_lines
from knifeedge.cli.demo import demo
from knifeedge.cli.evaluate import evaluate
from knifeedge.cli.experiment import experiment
from knifeedge.cli.export import export
from knifeedge.cli.models import models
from knifeedge.cli.predict import predict
from knifeedge.cli.protocol import protocol
from knifeedge.cli.report import report
from knifeedge.cli.train import train
from knifeedge.errors import KnifeEdgeError
from knifeedge.version import VERSION

app = typer.Typer(
    name="knifeedge",
    help="Train, score and compare models whose answers are yes or no.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _tell_version(asked: bool) -> None:
    if asked:
        print(f"knifeedge {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and stop.", callback=_tell_version, is_eager=True
        ),
    ] = False,
) -> None:
    """What may come before a verb."""


for verb in (
    *(demo, train, predict, evaluate, calibrate, protocol, experiment, report, export, models),
):
    app.command()(tell_interrupts(verb))
app.add_typer(data.app)


def main() -> None:
    """Run the command line; a user's mistake becomes one line on stderr and exit code 1.

    A command line that cannot be understood exits with 2.
    """
    # Waiting threads that spin cost a training most of its speed where other programs want the
    # cores: 4 times as fast with three of them on two cores, and 4 % slower on quiet ones.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        with warnings_as_lines():
            sys.exit(app(standalone_mode=False))
    except (KnifeEdgeError, ValueError, OSError) as error:
        _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort) as error:
        _fail(str(error) or "interrupted", 128 + getattr(error, "number", signal.SIGINT))
    except Exception as error:
        usage: Any = error
        # Typer's usage errors have no public base class; they tell themselves by this method.
        if not hasattr(usage, "format_message"):
            raise
        if not usage.format_message():  # no verb given: the help is the answer
            usage.show()
            sys.exit(2)
        command = usage.ctx.command_path if usage.ctx else "knifeedge"
        _fail(f"{usage.format_message()} See: {command} --help", 2)


def _fail(message: str, code: int) -> NoReturn:
    print(f"knifeedge: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
