"""Settings for all tests."""

import logging

import pytest
import structlog
from hypothesis import settings

# A busy machine is slow, not wrong: no test asserts a time.
settings.register_profile("kctl", deadline=None, print_blob=True)
settings.load_profile("kctl")

REAL_SERVER_TIMEOUT_S = 300


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the output of tests/scenarios anew"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests with real servers the time that starting a JVM may take."""
    for item in items:
        real = item.get_closest_marker("zookeeper") or item.get_closest_marker("kafka")
        if real and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(REAL_SERVER_TIMEOUT_S))


def pytest_runtest_teardown() -> None:
    """A command sets logging up for its process; run inside of a test, it must not for the next."""
    if structlog.is_configured():
        structlog.reset_defaults()
        root = logging.getLogger()
        for handler in root.handlers[:]:
            if type(handler) is logging.StreamHandler:
                root.removeHandler(handler)
        root.setLevel(logging.WARNING)
