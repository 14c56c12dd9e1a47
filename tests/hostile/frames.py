"""What a hostile client may send: requests of every op that are well formed, nearly so, or nothing of the kind."""

from __future__ import annotations

from random import Random

from tests.jute.factory import acl, frame, i4, i8, multi, request, string, strings, vector
from znoded.jute.ops import Op

#: Numbers at which counts, lengths, versions and modes change their meaning.
ODD_NUMBERS = (0, 1, 2, 3, 4, 5, 6, 7, 12, 28, 45, -1, -2, -10, 255, 65_536, 1_048_575, 1_048_576, 2**31 - 1, -(2**31))
OPS = (*map(int, Op), -20, 10, 99, 108, 2**31 - 1, -(2**31))
OPEN_ACL = vector(acl(31, b"world", b"anyone"))


def random_path(random: Random) -> bytes | None:
    """Mostly a path that some other request may have made, now and then an impossible one."""
    if random.random() < 0.08:
        return random.choice(
            (None, b"", b"/", b"//", b"x", b"/a/", b"/\0", b"/.", b"/a/../b", b"/\xff\xfe", b"/\xed\xa0\x80",
             b"/zookeeper", b"/zookeeper/config", b"/zookeeper/quota", b"/" * 300, b"/" + b"n" * 3000)
        )  # fmt: skip
    if random.random() < 0.1:
        top = random.choice((b"", b"/a", b"/a/b"))
        return b"/zookeeper/quota" + top + random.choice((b"", b"/zookeeper_limits", b"/zookeeper_stats"))
    return b"".join(b"/" + random.choice((b"a", b"b", b"c")) for _ in range(random.randint(1, 4)))


def random_number(random: Random) -> int:
    """An odd number more often than any."""
    return random.choice(ODD_NUMBERS) if random.random() < 0.7 else random.randint(-(2**31), 2**31 - 1)


def random_data(random: Random) -> bytes | None:
    """The data of a node."""
    return random.choice((None, b"", b"x" * 100, b"count=2,bytes=9", b"count=-1,bytes=-1=;countHardLimit=3", b"=,;=;,"))


def random_acl(random: Random) -> bytes:
    """An ACL: the open one more often than any."""
    if random.random() < 0.6:
        return OPEN_ACL
    schemes = (b"world", b"auth", b"digest", b"ip", b"sasl", b"x509", b"super", b"nope", b"", None)
    ids = (b"anyone", b"", None, b"u:h", b"127.0.0.1", b"10.0.0.0/8", b"::1/64", b"a=b", b"a@b", b":" * 50)
    entries = [
        acl(random.choice((31, 1, 0, -1, 16)), random.choice(schemes), random.choice(ids))
        for _ in range(random.randint(0, 4))
    ]
    return vector(*entries)


def random_version(random: Random) -> int:
    """The version that an operation demands."""
    return random.choice((-1, -1, 0, 1, random_number(random)))


def random_record(random: Random, op: int) -> bytes:
    """A record of that op, if it has one."""
    path = string(random_path(random))
    if op in (Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER):
        return path + string(random_data(random)) + random_acl(random) + i4(random.randint(-1, 7))
    if op == Op.CREATE_TTL:
        flags, ttl_ms = random.randint(-1, 7), random.choice((-1, 0, 1, 1000, 2**40, 2**63 - 1, -(2**63)))
        return path + string(random_data(random)) + random_acl(random) + i4(flags) + i8(ttl_ms)
    if op in (Op.DELETE, Op.CHECK):
        return path + i4(random_version(random))
    if op == Op.SET_DATA:
        return path + string(random_data(random)) + i4(random_version(random))
    if op == Op.SET_ACL:
        return path + random_acl(random) + i4(random_version(random))
    if op in (Op.EXISTS, Op.GET_DATA, Op.GET_CHILDREN, Op.GET_CHILDREN2):
        return path + bytes([random.choice((0, 1, 1, 255))])
    if op in (Op.CHECK_WATCHES, Op.REMOVE_WATCHES, Op.ADD_WATCH):
        return path + i4(random.choice((0, 1, 2, 3, 4, 5, random_number(random))))
    if op in (Op.SET_WATCHES, Op.SET_WATCHES2):
        zxid = random.choice((0, -1, 1, 2**63 - 1, -(2**63)))
        lists = 3 if op == Op.SET_WATCHES else 5
        return i8(zxid) + b"".join(random_paths(random) for _ in range(lists))
    if op == Op.AUTH:
        scheme = random.choice((b"digest", b"digest", b"ip", b"reads", b"world", b"sasl", b"", None, b"\xff"))
        return i4(random_number(random)) + string(scheme) + string(random.choice((b"u:p", b"", None, b":", b"\0\xff")))
    if op == Op.SASL:
        return string(random.choice((None, b"", b"x", b'username="a",realm="b"', b'="' * 50)))
    if op in (Op.MULTI, Op.MULTI_READ):
        inner = (1, 2, 5, 13, 14, 15, 19, 21) if op == Op.MULTI else (4, 8, 3)
        chosen = [random.choice(inner) for _ in range(random.randint(0, 5))]
        return multi(*[(each, random_record(random, each) if each != Op.MULTI else b"") for each in chosen])
    if op == Op.RECONFIG:
        return string(None) * 3 + i8(random.choice((-1, 0, 5)))
    return path


def random_paths(random: Random) -> bytes:
    """A vector of paths, or a count without them."""
    if random.random() < 0.2:
        return i4(random_number(random))
    return strings(*[random_path(random) or b"" for _ in range(random.randint(0, 5))])


def random_request(random: Random) -> bytes:
    """A well-formed request frame of any op."""
    op = random.choice(OPS)
    return request(random.choice((random.randint(1, 1000), -1, -2, -4, -8)), op, random_record(random, op))


def mutated(random: Random, data: bytes) -> bytes:
    """The frame with something wrong in it; most often its length is still right, so that the next one is met."""
    payload = bytearray(data[4:])
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(payload) + 1)
        what = random.random()
        if what < 0.4:
            payload[at : at + 4] = i4(random_number(random))
        elif what < 0.6:
            payload[at : at + 1] = random.randbytes(random.randint(0, 3))
        elif what < 0.8:
            del payload[at:]
        else:
            payload[at:at] = payload[at : at + random.randint(1, 40)]
    if random.random() < 0.04:
        return i4(random_number(random)) + bytes(payload)
    return frame(bytes(payload))


def hostile_frames(random: Random) -> bytes:
    """A few frames in a row."""
    frames = [random_request(random) for _ in range(random.randint(1, 6))]
    return b"".join([data if random.random() < 0.5 else mutated(random, data) for data in frames])


def random_pieces(random: Random, data: bytes) -> list[bytes]:
    """The data in the segments in which it happens to arrive."""
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((0, 0, 1, 2, 5))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if start < end]
