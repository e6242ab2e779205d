"""Commands in a group of click's, which may import them when they are asked for."""

from collections.abc import Mapping

import click


def commands_in(group: click.Group) -> Mapping[str, click.Command]:
    """The commands of a group, by name."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}
