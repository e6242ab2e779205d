"""`python -m demo`: the whole pipeline on real input, in about three minutes."""

import sys
from pathlib import Path

import click

from demo.cast import ROOT
from demo.narration import Narrator
from demo.orchestra import run_demo
from pipelines.errors import OncelakeError
from pipelines.runtime.processes import graceful_shutdown


@click.command("demo")
@click.option(
    "--days",
    default=14,
    show_default=True,
    help="Event days, 2 to 365: the first of 2013, with 10 March, the day of 23 hours, moved in as the last "
    "one (from 69 on it is among them anyway). All but the last are certified by the nightly run.",
)
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same replay.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=ROOT / ".demo",
    show_default=".demo in the checkout",
    help="For broker, lake, logs and report; emptied first, if a demo made it.",
)
@click.option("--console", is_flag=True, help="At the end, keep broker and console until Ctrl-C.")
@graceful_shutdown()
def demo(days: int, seed: int, folder: Path, *, console: bool) -> None:
    """Replay real flights, as unreliable producers send them, and show that the lake has each one once.

    A Kafka broker is started for it, unless KAFKA_BOOTSTRAP_SERVERS names a cluster.
    """
    narrator = Narrator()
    try:
        sound = run_demo(days, seed, folder, narrator, keep=console)
    except OncelakeError as error:
        narrator.console.print("[bold red]error:[/]", end=" ")
        narrator.say(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        narrator.say("Stopped; all that the demo had started is ended.")
        raise
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    demo()
