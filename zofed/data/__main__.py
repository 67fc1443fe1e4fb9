"""`python -m zofed.data fetch NAME ... [--directory=DIR]` and `python -m zofed.data list`."""

import argparse
import sys
from typing import NoReturn

from zofed.data.datasets import NAMES, load
from zofed.data.fetch import fetch


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; 0 when done, 1 when it failed or the usage was wrong."""
    parser = _Parser(prog="python -m zofed.data", description="Data sets of zofed.")
    commands = parser.add_subparsers(dest="command", required=True)
    fetch_parser = commands.add_parser("fetch", help="download data sets and check them")
    fetch_parser.add_argument("names", nargs="+", metavar="NAME", choices=NAMES, help=", ".join(NAMES))
    fetch_parser.add_argument("--directory", help="where to put the files (default: ~/.cache/zofed/NAME)")
    commands.add_parser("list", help="say which data sets are here")
    options = parser.parse_args(arguments)
    if options.command == "list":
        for name in NAMES:
            print(_status(name))
        return 0
    if options.directory is not None and len(options.names) > 1:
        parser.error("--directory takes one data set: the files of MNIST and Fashion-MNIST have equal names")
    for name in options.names:
        try:
            fetch(name, options.directory)
        except OSError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _status(name: str) -> str:
    try:
        dataset = load(name)
    except (FileNotFoundError, ValueError) as error:
        return str(error)
    train, test = len(dataset.train["label"]), len(dataset.test["label"])
    return f"{name}: {train} training and {test} test images"


if __name__ == "__main__":
    sys.exit(main())
