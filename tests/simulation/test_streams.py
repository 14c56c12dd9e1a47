"""Watch streams in simulated cells: every change once and in order, at whichever member, whatever happens to it.

As the properties come from etcd's list of watch bugs: no event twice or backwards (W1), none lost (W2), none behind a
compaction that did not happen (W3), progress in order (W5), no revision of the future (W6).
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.streams import run
from tests.zab_raft.core.history import Violation
from znoded.admin.api.groups import Group
from znoded.admin.api.streams import WatchStream

SEEDS = int(os.environ.get("ZNODED_STREAM_SEEDS", "12"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_streams_tell_everything_once_and_in_order(seed: int) -> None:
    run(seed)


def test_the_seeds_try_what_they_are_meant_to_try() -> None:
    reached: Counter[str] = Counter()
    for seed in range(SEEDS, 2 * SEEDS):
        reached += run(seed).reached
    assert {"stream", "stream broken", "event told", "kill", "power cut", "snapshot", "pause"} <= reached.keys()


def skip_the_history(stream: WatchStream, group: Group) -> None:
    """Goes on where the others are, and leaves out what was missed."""
    stream.position = stream._feed.position
    stream.is_live = True
    stream.next_line = group.end


def tell_all_again(stream: WatchStream, group: Group) -> None:
    """Begins with what its group has in its queue, whatever the client has seen of it."""
    stream.position = stream._feed.position
    stream.is_live = True
    stream.next_line = group._first


@pytest.mark.parametrize("planted", [skip_the_history, tell_all_again])
def test_planted_bugs_are_found(planted: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WatchStream, "_catch_up", planted)
    with pytest.raises(Violation, match="W1|W2"):
        all(map(run, range(SEEDS)))
