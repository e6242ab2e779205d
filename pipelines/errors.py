"""One tree of errors; each knows the exit code with which a job ends.

The message of an error is what the user reads, so it stands alone: where, what was found, what was
expected, how to fix it.
"""


class OncelakeError(Exception):
    """Anything that Oncelake reports in its own words. Exit code 1."""

    exit_code: int = 1


class ConfigError(OncelakeError):
    """Configuration, command line or environment refused before anything ran. Exit code 2."""

    exit_code = 2


class ContractError(OncelakeError):
    """A data contract refused before anything ran. Exit code 2."""

    exit_code = 2


class AuditFailed(OncelakeError):
    """A rebuilt day did not pass its audit; nothing of it was certified. Exit code 3."""

    exit_code = 3


class SourceError(OncelakeError):
    """The source cannot be trusted: offsets gone, topic recreated, checkpoint foreign. Exit code 4."""

    exit_code = 4


class InfrastructureError(OncelakeError):
    """A broker, a file system or a runtime failed after bounded retries. Exit code 1."""
