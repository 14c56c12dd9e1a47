/* Counts of durations in buckets that are at most 1/128 wide relative to their value: bounded memory, no sorting, and an error
 * of a quantile below 0.8 percent. */
#ifndef ZNODED_BENCH_HISTOGRAM_H
#define ZNODED_BENCH_HISTOGRAM_H

#include <stdint.h>

enum { PRECISION_BITS = 7, BUCKETS = (64 - PRECISION_BITS + 1) << PRECISION_BITS };

struct histogram {
    uint64_t counts[BUCKETS], total, max_ns;
};

static inline void histogram_add(struct histogram *h, uint64_t ns) {
    unsigned bucket = (unsigned)ns;
    if (ns >> PRECISION_BITS) {
        unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - PRECISION_BITS;
        bucket = (shift << PRECISION_BITS) + (unsigned)(ns >> shift);
    }
    h->counts[bucket]++;
    h->total++;
    if (ns > h->max_ns) h->max_ns = ns;
}

static inline void histogram_merge(struct histogram *into, const struct histogram *from) {
    for (int i = 0; i < BUCKETS; i++) into->counts[i] += from->counts[i];
    into->total += from->total;
    if (from->max_ns > into->max_ns) into->max_ns = from->max_ns;
}

/* The duration that the fraction `quantile` of all do not exceed; 0 when there are none. */
static inline uint64_t histogram_quantile_ns(const struct histogram *h, double quantile) {
    uint64_t rank = (uint64_t)(quantile * (double)h->total), seen = 0;
    if (rank >= h->total) return h->max_ns;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        seen += h->counts[bucket];
        if (seen <= rank) continue;
        if (bucket >> (PRECISION_BITS + 1) == 0) return bucket;
        unsigned shift = (bucket >> PRECISION_BITS) - 1;
        uint64_t least = (uint64_t)(bucket - (shift << PRECISION_BITS)) << shift;
        uint64_t middle = least + (1ull << shift) / 2;
        return middle < h->max_ns ? middle : h->max_ns;
    }
    return h->max_ns;
}

#endif
