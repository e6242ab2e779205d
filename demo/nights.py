"""Two nights of a demo: the first closes days; what comes for them afterwards, the second repairs."""

from contextlib import ExitStack

from demo.cast import Cast
from demo.processes import Job
from demo.producer import Producers


def first_night(cast: Cast, stack: ExitStack) -> None:
    """Rebuild, audit and certify all days but the last two.

    Args:
        cast: The demo.
        stack: Ends the job, should the demo end early.

    Raises:
        InfrastructureError: The run failed; the message names its log.
    """
    first, last = cast.plan.first_night[0], cast.plan.first_night[-1]
    nightly = cast.job("nightly_batch", "--from", str(first), "--to", str(last))
    with cast.narrator.step(f"The first night: rebuild, audit and certify {first} to {last}", _log(nightly)):
        cast.run(nightly, stack)


def second_night(cast: Cast, stack: ExitStack) -> None:
    """Send what is overdue, and run the next night, which finds and repairs the days that it belongs to.

    Args:
        cast: The demo.
        stack: Ends the jobs, should the demo end early.

    Raises:
        InfrastructureError: A job failed; the message names its log.
    """
    overdue, day = cast.plan.after_first_night, cast.plan.days[-2]
    title = f"The morning after: {len(overdue)} flights of certified days are sent for the first time"
    with cast.narrator.step(title, _OVERDUE), Producers(cast.servers, cast.topic) as producers:
        for _ in producers.send(overdue):
            pass
        cast.run(cast.job("ingest_stream", "--once"), stack)
    nightly = cast.job("nightly_batch", "--date", str(day))
    with cast.narrator.step(f"The second night: certify {day}, and repair what is late", _log(nightly)):
        cast.run(nightly, stack)
    for line in nightly.out.read_text(encoding="utf-8").splitlines():
        if "(late)" in line:
            cast.narrator.say(line.strip())


def _log(job: Job) -> str:
    return f"Its log: {job.log}"


_OVERDUE = (
    "Their days are certified already, and no reader sees them yet. ingest_stream --once fetches them into "
    "bronze; nobody tells the next run which days they belong to."
)
