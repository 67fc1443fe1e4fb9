"""Options of the test run; pytest reads them from the root only."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-data",
        action="store_true",
        help="fail, rather than skip, a test whose real data set is not on this machine",
    )
