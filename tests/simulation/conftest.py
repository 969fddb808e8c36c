"""What the tests of the checkers share."""

import pytest

from tests.simulation.history import History


@pytest.fixture
def history() -> History:
    return History()
