"""The `znoded` command: what an operator does beside running the server, which is `twistd znoded`."""

from __future__ import annotations

import argparse
import os
import sys

from znoded import __version__
from znoded.config import ConfigError, load_toml, load_zoo_cfg
from znoded.members import show_members
from znoded.recover import recover


def main(arguments: list[str] | None = None) -> int:
    """Run the command with `arguments`, by default the process's own. Returns the exit status: 0 when all is well."""
    parser = argparse.ArgumentParser(
        prog="znoded", description="Looks after a znoded. To run one: twistd -n --pidfile= znoded."
    )
    parser.add_argument("--version", action="version", version=f"znoded {__version__}")
    commands = parser.add_subparsers(required=True)
    check = commands.add_parser("check-config", help="say whether a configuration is usable, and start nothing")
    check.add_argument("file", metavar="FILE")
    check.add_argument("--zoo-cfg", action="store_true", help="FILE is a ZooKeeper's zoo.cfg")
    check.set_defaults(run=_check_config)
    members = commands.add_parser("members", help="show the members of a cell, how far each is, and what it lacks")
    members.add_argument(
        "--admin", metavar="URL", default="http://127.0.0.1:8080", help="a member's admin listener [%(default)s]"
    )
    members.set_defaults(run=lambda options: show_members(options.admin))
    recovery = commands.add_parser(
        "recover", help="after the loss of most members: show what a stopped one has, or go on with it alone"
    )
    recovery.add_argument("data_dir", metavar="DATA_DIR", help="its data directory")
    recovery.add_argument(
        "--give-up",
        metavar="NUMBERS",
        help="the numbers of all other members, such as 1,2: make a new cell without them, who never come back to it",
    )
    recovery.set_defaults(run=lambda options: recover(options.data_dir, options.give_up))
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads it has seen enough, as `grep -q` does; Python would complain at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _check_config(options: argparse.Namespace) -> int:
    try:
        _, notes = load_zoo_cfg(options.file) if options.zoo_cfg else (load_toml(options.file), [])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    for note in notes:
        print(note)
    print(f"{options.file} is a usable configuration.")
    return 0
