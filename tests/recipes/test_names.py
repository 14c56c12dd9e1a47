"""Who is ahead of whom, also among contenders of Kazoo and Curator."""

from __future__ import annotations

from znoded.recipes.names import ahead_by, own, parse, predecessor, prefixes, queue

ME = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"


def pair(own_id: str, sequence: int, is_shared: bool = False) -> list[str]:
    return [f"{prefix}{sequence + index:010d}" for index, prefix in enumerate(prefixes(own_id, is_shared))]


def ahead(children: list[str], is_shared: bool = False) -> str | None:
    mine = own(children, ME)[0]
    assert mine.is_shared is is_shared
    return predecessor(children, ME, mine)


def test_the_last_one_ahead_is_waited_for_and_nobody_else() -> None:
    first, second, behind = pair("a" * 32, 0), pair(OTHER, 2), pair("c" * 32, 6)
    assert ahead([*behind, *pair(ME, 4), *second, *first]) == second[1]
    assert ahead([*behind, *pair(ME, 4)]) is None


def test_contenders_of_kazoo_and_curator_are_waited_for() -> None:
    for name in (
        f"{OTHER}__lock__0000000003",
        f"{OTHER}__rlock__0000000003",
        f"_c_{OTHER}-lock-0000000003",
        "-2147483648__lock__0000000003",
    ):
        assert ahead([name, *pair(ME, 4)]) == name


def test_what_has_no_number_is_no_contender() -> None:
    assert ahead(["leases", "lock-12", *pair(ME, 4)]) is None


def test_readers_wait_for_writers_only() -> None:
    writer, reader = pair(OTHER, 0), pair("b" * 32, 2, is_shared=True)
    kazoo = f"{OTHER}__rlock__0000000003"
    mine = pair(ME, 4, is_shared=True)
    assert ahead([*writer, *reader, kazoo, *mine], is_shared=True) == writer[1]
    assert ahead([*reader, kazoo, *mine], is_shared=True) is None
    assert ahead([*pair("b" * 32, 0, is_shared=True), kazoo, *pair(ME, 4)]) == kazoo


def test_numbers_go_on_behind_the_greatest() -> None:
    assert ahead_by(2147483647, -2147483648) == 1
    assert ahead_by(-2147483648, 2147483647) == 0
    assert ahead_by(5, 5) == 0


def test_a_queue_goes_on_behind_the_greatest_number() -> None:
    holder, mine = f"{OTHER}__lock__2147483647", prefixes(ME, False)
    names = [f"{mine[0]}-2147483648", holder, f"{mine[1]}-2147483647"]
    assert [each.name for each in queue(names)] == [holder, names[0]]


def test_the_znodes_of_a_contender_are_in_order_behind_the_greatest_number() -> None:
    first, second = prefixes(ME, False)
    names = [f"{second}-2147483648", f"{first}2147483647"]
    assert [each.name for each in own(names, ME)] == names[::-1]


def test_numbers_are_read_as_the_server_writes_them() -> None:
    numbers = {"__lock__0000000007": 7, "__lock__-2147483648": -2147483648, "__lock__-000000001": -1}
    numbers |= {"-lock-0000000007": 7, "-lock--2147483648": -2147483648, "-lock--000000001": -1}
    for name, sequence in numbers.items():
        contender = parse(name)
        assert contender is not None
        assert contender.sequence == sequence


def test_a_queue_has_each_contender_once() -> None:
    assert [each.sequence for each in queue([*pair(ME, 4), *pair(OTHER, 0), "x-lock-0000000002"])] == [0, 2, 4]
