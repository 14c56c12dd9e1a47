"""When garbage is collected: by the clock, never by itself, and never so long that it takes more than its share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock

from znoded.garbage_collection import GarbageCollection


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The generations that were collected, in order; nothing really is."""
    generations: list[int] = []

    def collect(generation: int) -> int:
        generations.append(generation)
        return 0

    monkeypatch.setattr(gc, "collect", collect)
    monkeypatch.setattr(gc, "get_count", lambda: (100_000, 0, 0))
    return generations


@pytest.fixture
def pause_s() -> list[float]:
    """How long each collection takes."""
    return [0.0]


@pytest.fixture
def garbage(clock: Clock, pause_s: list[float]) -> Iterator[GarbageCollection]:
    reading_s = 0.0

    def now_s() -> float:
        nonlocal reading_s
        reading_s += pause_s[0]
        return reading_s

    garbage = GarbageCollection(clock, now_s)
    yield garbage
    garbage.stop()


def test_python_does_not_collect_by_itself_while_it_runs(garbage: GarbageCollection) -> None:
    garbage.start()
    assert not gc.isenabled()
    garbage.freeze()
    assert not gc.isenabled()
    garbage.stop()
    assert gc.isenabled()


def test_what_was_loaded_is_never_looked_at_again(garbage: GarbageCollection) -> None:
    garbage.start()
    garbage.freeze()
    assert gc.get_freeze_count() > 0
    garbage.stop()
    assert gc.get_freeze_count() == 0


def test_nothing_is_collected_before_the_start_is_over(
    garbage: GarbageCollection, clock: Clock, collected: list[int]
) -> None:
    garbage.start()
    clock.pump([1.0] * 100)
    assert collected == []


def test_each_generation_has_its_time(garbage: GarbageCollection, clock: Clock, collected: list[int]) -> None:
    garbage.start()
    garbage.freeze()
    clock.pump([1.0] * 60)
    assert collected.count(2) == 1
    assert collected.count(1) == 5
    assert collected.count(0) == 54
    assert [pauses.count for pauses in garbage.pauses] == [54, 5, 1]


def test_few_young_objects_are_left_alone(
    garbage: GarbageCollection, clock: Clock, collected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "get_count", lambda: (10, 0, 0))
    garbage.start()
    garbage.freeze()
    clock.pump([1.0] * 5)
    assert collected == []


def test_a_long_pause_is_followed_by_a_long_rest(
    garbage: GarbageCollection, clock: Clock, collected: list[int], pause_s: list[float]
) -> None:
    pause_s[0] = 0.05
    garbage.start()
    garbage.freeze()
    clock.pump([1.0] * 5)
    assert collected == [0]
    clock.pump([1.0] * 1)
    assert collected == [0, 0]
    assert garbage.pauses[0].longest_s == pytest.approx(0.05)
    assert garbage.pauses[0].total_s == pytest.approx(0.1)
