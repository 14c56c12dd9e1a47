/* The few pieces of the ZooKeeper client protocol that the load driver and the null server share.
 * Integers are big-endian. A frame is an int of its length and the payload; a string or buffer is an int of its length and the bytes. */
#ifndef ZNODED_BENCH_WIRE_H
#define ZNODED_BENCH_WIRE_H

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    OP_CREATE = 1,
    OP_DELETE = 2,
    OP_GET_DATA = 4,
    OP_SET_DATA = 5,
    OP_PING = 11,
    OP_AUTH = 100,
    OP_CLOSE_SESSION = -11,
    NOTIFICATION_XID = -1,
    PING_XID = -2,
    AUTH_XID = -4,
    STAT_BYTES = 68,
    REPLY_HEADER_BYTES = 16, /* int xid, long zxid, int err */
    CONNECT_REPLY_BYTES = 37,
    SCRATCH_BYTES = 1 << 20, /* one read; also the longest frame understood */
};

/* Bytes that grow at their end and leave at their start. */
struct buffer {
    uint8_t *bytes;
    size_t start, end, capacity;
};

_Noreturn static inline void die(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

/* As die, behind a system call that failed. */
_Noreturn static inline void die_errno(const char *what) {
    perror(what);
    exit(1);
}

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* Room for `count` more bytes at the end; the caller fills them. */
static inline uint8_t *extend(struct buffer *b, size_t count) {
    if (b->start == b->end) b->start = b->end = 0;
    if (b->end + count > b->capacity) {
        b->capacity = (b->end + count) * 2;
        b->bytes = realloc(b->bytes, b->capacity);
        if (!b->bytes) die_errno("realloc");
    }
    uint8_t *room = b->bytes + b->end;
    b->end += count;
    return room;
}

static inline void store_int(uint8_t *at, int32_t value) {
    uint32_t wire = htonl((uint32_t)value);
    memcpy(at, &wire, sizeof wire);
}

static inline int32_t load_int(const uint8_t *at) {
    uint32_t wire;
    memcpy(&wire, at, sizeof wire);
    return (int32_t)ntohl(wire);
}

static inline void put_int(struct buffer *b, int32_t value) { store_int(extend(b, 4), value); }

static inline void put_long(struct buffer *b, int64_t value) {
    put_int(b, (int32_t)(value >> 32));
    put_int(b, (int32_t)value);
}

static inline void put_bytes(struct buffer *b, const void *bytes, size_t count) {
    put_int(b, (int32_t)count);
    memcpy(extend(b, count), bytes, count);
}

static inline void put_text(struct buffer *b, const char *text) { put_bytes(b, text, strlen(text)); }

static inline void put_boolean(struct buffer *b, int value) { *extend(b, 1) = (uint8_t)value; }

/* Digits of a number at a fixed width, for paths that are all of one length. */
static inline void store_digits(uint8_t *at, int width, uint32_t value) {
    for (int i = width - 1; i >= 0; i--, value /= 10) at[i] = (uint8_t)('0' + value % 10);
}

#endif
