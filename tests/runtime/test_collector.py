"""The garbage collector around a load: only for those who ask, and as it was afterwards."""

import gc
from collections.abc import Iterator

import pytest

from kctl.runtime.collector import THRESHOLDS, Collector


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    gc.enable()


def test_it_is_off_while_a_cluster_is_loaded_and_looks_seldom_after_that() -> None:
    before = gc.get_threshold()
    collector = Collector(tuned=True)
    collector.loading()
    assert not gc.isenabled()
    collector.loaded(active=True)
    assert (gc.isenabled(), gc.get_threshold()) == (True, THRESHOLDS)
    assert gc.get_freeze_count() > 0
    collector.loading()
    collector.loaded(active=False)
    assert (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()) == (True, before, 0)


def test_nobody_else_notices() -> None:
    before = gc.get_threshold()
    collector = Collector()
    collector.loading()
    assert gc.isenabled()
    collector.loaded(active=True)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
