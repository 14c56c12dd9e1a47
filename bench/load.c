/* load: drives a server of the ZooKeeper client protocol as hard as it answers, and reports what came back.
 *
 *   load HOST:PORT[,HOST:PORT...] MODE [--option value ...]   prints one JSON line; exit 1 when a request failed or a server went away
 *
 * The connections are spread over the addresses, one after the other.
 *
 * Modes
 *   fill       create the parent, its directories and --keys znodes (what get, set, mixed and fanout use); those that exist stay
 *   get        getData of keys at random
 *   set        setData of keys at random
 *   mixed      the share --reads of getData, the rest setData
 *   create     create new znodes, and delete them afterwards, unmeasured
 *   fanout     every connection but one watches one key, the last one changes it; a round ends when all watchers have the event
 *   sessions   open --connections new sessions, --depth of them at a time
 *   hold       open --connections sessions, print the line, and keep them alive until standard input ends
 *
 * With --serializable 1 every session asks znoded, by its own means, for reads that its member answers without asking the others.
 *
 * Each connection keeps --depth requests in flight: it sends a new one for each reply. A duration runs from the moment a request is
 * handed to send() to the moment recv() has its reply, and counts if that moment lies in the measured time, which follows the warm-up.
 * A thread owns its connections, its epoll and its counts; threads share nothing while they measure.
 *
 * `driver_cpu_share` is the CPU time of the busiest thread over the measured time. Well below 1 means that this program waited for the
 * server and not the other way round. The null server beside this file shows the same from the other side: the driver's own ceiling. */
#define _GNU_SOURCE
#include "histogram.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    EVENTS = 512,
    TICK_MS = 100,
    SILENCE_LIMIT_S = 60,
    SPARE_FILES = 200, /* beside the connections */
    SESSIONS_OPENING = 40, /* below the 50 pending connections that ZooKeeper's listener holds */
    KEYS_PER_DIRECTORY = 1000,
    MOST_KEYS = 10000000,
    ERROR_NODE_EXISTS = -110,
    PERMISSION_ALL = 31,
    PASSWORD_BYTES = 16,
    SERVERS_MOST = 16,
    PATH_AT = 16, /* in a request frame: behind its length, xid, op and the path's length */
};

enum mode { FILL, GET, SET, MIXED, CREATE, FANOUT, SESSIONS, HOLD, MODES };
static const char *const MODE_NAMES[MODES] = {"fill", "get", "set", "mixed", "create", "fanout", "sessions", "hold"};

static struct {
    struct sockaddr_in servers[SERVERS_MOST];
    int server_count;
    enum mode mode;
    double connections, depth, size, keys, seconds, warm_up, threads, reads, session_timeout_ms, serializable;
    const char *prefix;
} options = {.connections = 100, .depth = 1, .size = 100, .keys = 1000, .seconds = 5, .warm_up = 1, .threads = 1, .reads = 0.9,
             .session_timeout_ms = 30000, .prefix = "/bench"};

struct connection {
    int fd;
    int number; /* counted over all threads */
    uint32_t armed; /* epoll events asked for */
    bool has_session, closing, used;
    int32_t xid;             /* of the latest request */
    int in_flight, oldest;   /* of sent_ns, a ring of `depth` */
    uint64_t *sent_ns;
    uint64_t pinged_ns;
    uint32_t created; /* znodes that create made and that are still there */
    struct buffer rest, out; /* the start of a frame whose end has not come; what the socket did not take */
};

struct worker;
/* Appends one request to the connection's `out`; false when it has none left to send. */
typedef bool source(struct worker *, struct connection *);

struct worker {
    pthread_t thread;
    int index, epoll_fd;
    struct connection *connections;
    int connection_count;
    source *next_request;
    uint64_t stop_ns; /* no new requests from here on */
    int opening, in_flight, notified;
    uint32_t next_key;
    uint64_t random;
    uint64_t measure_from_ns, measure_until_ns, cpu_from_ns, cpu_ns, measured_ns;
    uint64_t notified_from_ns;
    uint64_t failed;
    int32_t first_error, tolerated_error;
    struct histogram latency, rounds;
    uint8_t scratch[SCRATCH_BYTES];
};

static struct {
    struct buffer get, watch, set, create_key, delete_new, create_new;
    struct buffer create_prefix, create_directory, create_parent, delete_parent;
} frames; /* requests made once; what varies is written over a copy */
static size_t prefix_bytes;
static pthread_barrier_t all_workers;

/* ---- Request frames ---- */

static void begin_frame(struct buffer *b, int32_t op, const char *path) {
    put_int(b, 0);
    put_int(b, 0);
    put_int(b, op);
    put_text(b, path);
}

static void end_frame(struct buffer *b) { store_int(b->bytes, (int32_t)(b->end - 4)); }

static void make_get(struct buffer *b, const char *path, bool watch) {
    begin_frame(b, OP_GET_DATA, path);
    put_boolean(b, watch);
    end_frame(b);
}

static void make_set(struct buffer *b, const char *path, const char *value) {
    begin_frame(b, OP_SET_DATA, path);
    put_text(b, value);
    put_int(b, -1); /* any version */
    end_frame(b);
}

static void make_create(struct buffer *b, const char *path, const char *value) {
    begin_frame(b, OP_CREATE, path);
    put_text(b, value);
    put_int(b, 1); /* ACL entries */
    put_int(b, PERMISSION_ALL);
    put_text(b, "world");
    put_text(b, "anyone");
    put_int(b, 0); /* persistent */
    end_frame(b);
}

static void make_delete(struct buffer *b, const char *path) {
    begin_frame(b, OP_DELETE, path);
    put_int(b, -1); /* any version */
    end_frame(b);
}

static void make_frames(void) {
    char directory[256], key[300], parent[256], node[300];
    prefix_bytes = strlen(options.prefix);
    if (options.prefix[0] != '/' || prefix_bytes > 200) die("load: --prefix has to be a path of at most 200 bytes");
    snprintf(directory, sizeof directory, "%s/d0000", options.prefix);
    snprintf(key, sizeof key, "%s/k0000000", directory);
    snprintf(parent, sizeof parent, "%s/c0000000-00000", options.prefix);
    snprintf(node, sizeof node, "%s/n0000000", parent);
    char *value = calloc(1, (size_t)options.size + 1);
    memset(value, 'x', (size_t)options.size);
    make_get(&frames.get, key, false);
    make_get(&frames.watch, key, true);
    make_set(&frames.set, key, value);
    make_create(&frames.create_key, key, value);
    make_create(&frames.create_prefix, options.prefix, "");
    make_create(&frames.create_directory, directory, "");
    make_create(&frames.create_parent, parent, "");
    make_create(&frames.create_new, node, value);
    make_delete(&frames.delete_new, node);
    make_delete(&frames.delete_parent, parent);
    free(value);
}

/* Appends a copy of a request under the connection's next xid. Returns where its path goes on behind the prefix. */
static uint8_t *append(struct connection *c, const struct buffer *frame) {
    uint8_t *at = extend(&c->out, frame->end);
    memcpy(at, frame->bytes, frame->end);
    store_int(at + 4, ++c->xid);
    return at + PATH_AT + prefix_bytes;
}

static uint8_t *append_in_directory(struct connection *c, const struct buffer *frame, uint32_t key) {
    uint8_t *path = append(c, frame);
    store_digits(path + 2, 4, key / KEYS_PER_DIRECTORY);
    return path;
}

static void append_keyed(struct connection *c, const struct buffer *frame, uint32_t key) {
    store_digits(append_in_directory(c, frame, key) + 8, 7, key);
}

static uint8_t *append_in_parent(struct connection *c, const struct buffer *frame) {
    uint8_t *path = append(c, frame);
    store_digits(path + 2, 7, (uint32_t)getpid());
    store_digits(path + 10, 5, (uint32_t)c->number);
    return path;
}

static void append_numbered(struct connection *c, const struct buffer *frame, uint32_t number) {
    store_digits(append_in_parent(c, frame) + 17, 7, number);
}

static void append_header(struct connection *c, int32_t xid, int32_t op) {
    put_int(&c->out, 8);
    put_int(&c->out, xid);
    put_int(&c->out, op);
}

/* ---- One connection ---- */

static void arm(struct worker *w, struct connection *c, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (c->armed != events) epoll_ctl(w->epoll_fd, c->armed ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &event);
    c->armed = events;
}

static void flush(struct worker *w, struct connection *c) {
    struct buffer *out = &c->out;
    while (out->start < out->end) {
        ssize_t sent = send(c->fd, out->bytes + out->start, out->end - out->start, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && !c->closing) die_errno("load: send");
        if (sent < 0) break;
        out->start += (size_t)sent;
    }
    arm(w, c, out->start < out->end ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void send_more(struct worker *w, struct connection *c, uint64_t now) {
    int depth = (int)options.depth;
    while (now < w->stop_ns && c->in_flight < depth && w->next_request(w, c)) {
        c->sent_ns[(c->oldest + c->in_flight) % depth] = now;
        c->in_flight++;
        w->in_flight++;
    }
    flush(w, c);
}

static void start_session(struct worker *w, struct connection *c) {
    static const uint8_t no_password[PASSWORD_BYTES];
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) die_errno("load: socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    c->sent_ns[0] = now_ns();
    struct sockaddr_in *server = &options.servers[c->number % options.server_count];
    if (connect(c->fd, (struct sockaddr *)server, sizeof *server) && errno != EINPROGRESS) die_errno("load: connect");
    put_int(&c->out, 4 + 8 + 4 + 8 + 4 + PASSWORD_BYTES + 1);
    put_int(&c->out, 0);  /* protocol version */
    put_long(&c->out, 0); /* last zxid seen */
    put_int(&c->out, (int32_t)options.session_timeout_ms);
    put_long(&c->out, 0); /* a new session */
    put_bytes(&c->out, no_password, PASSWORD_BYTES);
    put_boolean(&c->out, false); /* read-only is not good enough */
    w->opening++;
    flush(w, c);
}

static void record(struct worker *w, uint64_t since, uint64_t now) {
    if (now >= w->measure_from_ns && now < w->measure_until_ns) histogram_add(&w->latency, now - since);
}

static void on_open(struct worker *w, struct connection *c, uint64_t now) {
    w->opening--;
    record(w, c->sent_ns[0], now);
}

static void ask_for_serializable_reads(struct connection *c) {
    size_t start = c->out.end - c->out.start;
    append_header(c, AUTH_XID, OP_AUTH);
    put_int(&c->out, 0); /* type, unused */
    put_text(&c->out, "reads");
    put_text(&c->out, "serializable");
    store_int(c->out.bytes + c->out.start + start, (int32_t)(c->out.end - c->out.start - start - 4));
}

static void on_session(struct worker *w, struct connection *c, const uint8_t *payload, size_t payload_bytes, uint64_t now) {
    if (payload_bytes < CONNECT_REPLY_BYTES - 1 || load_int(payload + 4) <= 0) die("load: the server refused a session");
    c->has_session = true;
    c->pinged_ns = now;
    if (options.serializable) ask_for_serializable_reads(c);
    else on_open(w, c, now);
}

static void on_auth(struct worker *w, struct connection *c, const uint8_t *payload, uint64_t now) {
    if (load_int(payload + 12)) die("load: the server knows no serializable reads");
    on_open(w, c, now);
}

static void on_reply(struct worker *w, struct connection *c, const uint8_t *payload, uint64_t now) {
    int32_t xid = load_int(payload), error = load_int(payload + 12);
    if (xid != c->xid - c->in_flight + 1) die("load: a reply came out of order");
    if (options.mode != FANOUT) record(w, c->sent_ns[c->oldest], now);
    c->oldest = (c->oldest + 1) % (int)options.depth;
    c->in_flight--;
    w->in_flight--;
    if (error == 0 || error == w->tolerated_error) return;
    if (!w->failed++) w->first_error = error;
}

static void on_frame(struct worker *w, struct connection *c, const uint8_t *payload, size_t payload_bytes, uint64_t now) {
    if (!c->has_session) {
        on_session(w, c, payload, payload_bytes, now);
        return;
    }
    if (payload_bytes < REPLY_HEADER_BYTES) die("load: a reply without a header");
    int32_t xid = load_int(payload);
    if (xid == NOTIFICATION_XID) {
        w->notified++;
        record(w, w->notified_from_ns, now);
    } else if (xid == AUTH_XID) {
        on_auth(w, c, payload, now);
    } else if (xid != PING_XID) {
        on_reply(w, c, payload, now);
    }
}

static void on_closed(struct worker *w, struct connection *c) {
    if (!c->closing) die_errno("load: the server closed a connection");
    epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    w->in_flight -= c->in_flight;
    c->in_flight = 0;
}

static void on_readable(struct worker *w, struct connection *c) {
    size_t have = c->rest.end - c->rest.start;
    if (have) memcpy(w->scratch, c->rest.bytes + c->rest.start, have);
    c->rest.start = c->rest.end = 0;
    errno = 0;
    ssize_t got = recv(c->fd, w->scratch + have, sizeof w->scratch - have, 0);
    if (got <= 0) {
        on_closed(w, c);
        return;
    }
    have += (size_t)got;
    uint64_t now = now_ns();
    size_t at = 0;
    while (have - at >= 4) {
        size_t payload_bytes = (uint32_t)load_int(w->scratch + at);
        if (payload_bytes > sizeof w->scratch - 4) die("load: a frame that is too long");
        if (have - at - 4 < payload_bytes) break;
        on_frame(w, c, w->scratch + at + 4, payload_bytes, now);
        at += 4 + payload_bytes;
    }
    if (have > at) memcpy(extend(&c->rest, have - at), w->scratch + at, have - at);
    send_more(w, c, now);
}

/* ---- Phases: what all connections of a thread do together ---- */

static void count_cpu(struct worker *w) {
    uint64_t now = now_ns();
    if (!w->cpu_from_ns && now >= w->measure_from_ns) w->cpu_from_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (w->cpu_from_ns && !w->cpu_ns && now >= w->measure_until_ns)
        w->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - w->cpu_from_ns;
}

/* Handles what there is within a tick. False when there was nothing. */
static bool handle_events(struct worker *w) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(w->epoll_fd, events, EVENTS, TICK_MS);
    if (count < 0 && errno != EINTR) die_errno("load: epoll_wait");
    for (int i = 0; i < count; i++) {
        struct connection *c = events[i].data.ptr;
        if (events[i].events & EPOLLOUT) flush(w, c);
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(w, c);
    }
    count_cpu(w);
    return count > 0;
}

static void wait_for_events(struct worker *w) {
    for (int ticks = 0; !handle_events(w); ticks++)
        if (ticks * TICK_MS > SILENCE_LIMIT_S * 1000) die("load: the server answers nothing for a minute");
}

static bool no_request(struct worker *w, struct connection *c) {
    (void)w, (void)c;
    return false;
}

/* Every connection sends what the source gives, until `stop_ns`; returns when the last reply is there. */
static void run_phase(struct worker *w, source *next_request, uint64_t stop_ns) {
    w->next_request = next_request;
    w->stop_ns = stop_ns;
    for (int i = 0; i < w->connection_count; i++) {
        w->connections[i].used = false;
        send_more(w, &w->connections[i], now_ns());
    }
    while (w->in_flight) wait_for_events(w);
    w->next_request = no_request;
}

static bool once(struct connection *c) {
    bool first = !c->used;
    c->used = true;
    return first;
}

/* The measured time begins now, or behind a warm-up, and ends by itself or with end_measure. */
static void begin_measure(struct worker *w, double warm_up_s, double seconds) {
    w->measure_from_ns = now_ns() + (uint64_t)(warm_up_s * 1e9);
    w->measure_until_ns = seconds > 0 ? w->measure_from_ns + (uint64_t)(seconds * 1e9) : UINT64_MAX;
    count_cpu(w);
}

static void end_measure(struct worker *w) {
    if (w->measure_until_ns > now_ns()) w->measure_until_ns = now_ns();
    count_cpu(w);
    w->measured_ns = w->measure_until_ns - w->measure_from_ns;
    w->measure_from_ns = UINT64_MAX;
}

static void open_sessions(struct worker *w) {
    int window = options.mode == SESSIONS ? (int)options.depth : SESSIONS_OPENING, started = 0;
    w->next_request = no_request;
    if (options.mode == SESSIONS) begin_measure(w, 0, 0);
    while (started < w->connection_count || w->opening) {
        while (started < w->connection_count && w->opening < window) start_session(w, &w->connections[started++]);
        wait_for_events(w);
    }
    if (options.mode == SESSIONS) end_measure(w);
}

static bool close_session(struct worker *w, struct connection *c) {
    (void)w;
    if (!once(c)) return false;
    c->closing = true;
    append_header(c, ++c->xid, OP_CLOSE_SESSION);
    return true;
}

/* ---- Modes ---- */

static uint32_t random_key(struct worker *w) {
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (uint32_t)((w->random >> 32) * (uint64_t)options.keys >> 32);
}

static bool get_request(struct worker *w, struct connection *c) {
    append_keyed(c, &frames.get, random_key(w));
    return true;
}

static bool set_request(struct worker *w, struct connection *c) {
    append_keyed(c, &frames.set, random_key(w));
    return true;
}

static bool mixed_request(struct worker *w, struct connection *c) {
    uint32_t key = random_key(w);
    bool read = (double)(w->random & 0xffff) < options.reads * 65536.0;
    append_keyed(c, read ? &frames.get : &frames.set, key);
    return true;
}

static bool prefix_request(struct worker *w, struct connection *c) {
    if (w->index || c != w->connections || !once(c)) return false;
    append(c, &frames.create_prefix);
    return true;
}

static bool directory_request(struct worker *w, struct connection *c) {
    if (w->index || w->next_key >= options.keys) return false;
    append_in_directory(c, &frames.create_directory, w->next_key);
    w->next_key += KEYS_PER_DIRECTORY;
    return true;
}

static bool fill_request(struct worker *w, struct connection *c) {
    if (w->next_key >= options.keys) return false;
    append_keyed(c, &frames.create_key, w->next_key);
    w->next_key += (uint32_t)options.threads;
    return true;
}

static bool parent_request(struct worker *w, struct connection *c) {
    (void)w;
    if (!once(c)) return false;
    append_in_parent(c, &frames.create_parent);
    return true;
}

static bool create_request(struct worker *w, struct connection *c) {
    (void)w;
    append_numbered(c, &frames.create_new, c->created++);
    return true;
}

static bool delete_request(struct worker *w, struct connection *c) {
    (void)w;
    if (c->created) append_numbered(c, &frames.delete_new, --c->created);
    else if (once(c)) append_in_parent(c, &frames.delete_parent);
    else return false;
    return true;
}

static bool watch_request(struct worker *w, struct connection *c) {
    if (c == &w->connections[w->connection_count - 1] || !once(c)) return false;
    append_keyed(c, &frames.watch, 0);
    return true;
}

static bool change_request(struct worker *w, struct connection *c) {
    if (c != &w->connections[w->connection_count - 1] || !once(c)) return false;
    w->notified_from_ns = now_ns();
    append_keyed(c, &frames.set, 0);
    return true;
}

static void run_steady(struct worker *w, source *next_request) {
    begin_measure(w, options.warm_up, options.seconds);
    run_phase(w, next_request, w->measure_until_ns);
    end_measure(w);
}

static void run_create(struct worker *w) {
    w->tolerated_error = ERROR_NODE_EXISTS;
    run_phase(w, prefix_request, UINT64_MAX);
    pthread_barrier_wait(&all_workers);
    run_phase(w, parent_request, UINT64_MAX);
    w->tolerated_error = 0;
    run_steady(w, create_request);
    run_phase(w, delete_request, UINT64_MAX);
}

static void run_fill(struct worker *w) {
    w->tolerated_error = ERROR_NODE_EXISTS;
    run_phase(w, prefix_request, UINT64_MAX);
    w->next_key = 0;
    run_phase(w, directory_request, UINT64_MAX);
    pthread_barrier_wait(&all_workers);
    w->next_key = (uint32_t)w->index;
    begin_measure(w, 0, 0);
    run_phase(w, fill_request, UINT64_MAX);
    end_measure(w);
}

/* One change of the watched key. Returns the time until all watchers had the event. */
static uint64_t change_and_wait(struct worker *w) {
    struct connection *changer = &w->connections[w->connection_count - 1];
    w->notified = 0;
    w->next_request = change_request;
    changer->used = false;
    send_more(w, changer, now_ns());
    while (w->notified < w->connection_count - 1) wait_for_events(w);
    uint64_t took_ns = now_ns() - w->notified_from_ns;
    while (w->in_flight) wait_for_events(w);
    return took_ns;
}

/* Only the time from a change to its last event counts; setting the watches does not. */
static void run_fanout(struct worker *w) {
    uint64_t warm_ns = now_ns() + (uint64_t)(options.warm_up * 1e9), end_ns = warm_ns + (uint64_t)(options.seconds * 1e9);
    uint64_t cpu_ns = 0, measured_ns = 0;
    while (now_ns() < end_ns) {
        run_phase(w, watch_request, UINT64_MAX);
        if (w->failed) die("load: the watches cannot be set: fill first");
        if (now_ns() < warm_ns) {
            change_and_wait(w);
            continue;
        }
        uint64_t cpu_from_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        w->measure_from_ns = now_ns();
        w->measure_until_ns = UINT64_MAX;
        uint64_t took_ns = change_and_wait(w);
        w->measure_from_ns = UINT64_MAX;
        histogram_add(&w->rounds, took_ns);
        measured_ns += took_ns;
        cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_from_ns;
    }
    w->cpu_ns = cpu_ns;
    w->measured_ns = measured_ns;
}

static void ping_when_due(struct worker *w) {
    uint64_t now = now_ns(), interval_ns = (uint64_t)(options.session_timeout_ms * 1e6 / 3);
    for (int i = 0; i < w->connection_count; i++) {
        struct connection *c = &w->connections[i];
        if (now - c->pinged_ns < interval_ns) continue;
        c->pinged_ns = now;
        append_header(c, PING_XID, OP_PING);
        flush(w, c);
    }
}

static bool input_ended(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char ignored[256];
    return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, ignored, sizeof ignored) <= 0;
}

static void run_hold(struct worker *w) {
    printf("{\"mode\": \"hold\", \"connections\": %d}\n", w->connection_count);
    fflush(stdout);
    while (!input_ended()) {
        handle_events(w);
        ping_when_due(w);
    }
}

static void *run_worker(void *argument) {
    struct worker *w = argument;
    open_sessions(w);
    pthread_barrier_wait(&all_workers);
    switch (options.mode) {
    case FILL: run_fill(w); break;
    case GET: run_steady(w, get_request); break;
    case SET: run_steady(w, set_request); break;
    case MIXED: run_steady(w, mixed_request); break;
    case CREATE: run_create(w); break;
    case FANOUT: run_fanout(w); break;
    case HOLD: run_hold(w); break;
    case SESSIONS: case MODES: break;
    }
    run_phase(w, close_session, UINT64_MAX);
    return NULL;
}

/* ---- The whole ---- */

static struct worker *make_worker(int index) {
    struct worker *w = calloc(1, sizeof *w);
    if (!w) die_errno("calloc");
    int threads = (int)options.threads, connections = (int)options.connections;
    w->index = index;
    w->epoll_fd = epoll_create1(0);
    w->random = now_ns() * 2654435761u + (uint64_t)index + 1;
    w->measure_from_ns = UINT64_MAX;
    w->connection_count = connections / threads + (index < connections % threads);
    w->connections = calloc((size_t)w->connection_count, sizeof *w->connections);
    for (int i = 0; i < w->connection_count; i++) {
        w->connections[i].number = index + i * threads;
        w->connections[i].sent_ns = calloc((size_t)options.depth, sizeof(uint64_t));
    }
    return w;
}

static double ms(uint64_t ns) { return (double)ns / 1e6; }

static void print_quantiles(const char *prefix, const struct histogram *h) {
    printf(", \"%sp50_ms\": %.3f, \"%sp99_ms\": %.3f, \"%smax_ms\": %.3f", prefix, ms(histogram_quantile_ns(h, 0.5)), prefix,
           ms(histogram_quantile_ns(h, 0.99)), prefix, ms(h->max_ns));
}

/* Prints the line of the result. Returns the exit status. */
static int report(struct worker **workers) {
    struct worker *first = workers[0];
    double requests_per_s = 0, busiest = 0;
    for (int i = 0; i < (int)options.threads; i++) {
        struct worker *w = workers[i];
        if (w->measured_ns) {
            requests_per_s += (double)w->latency.total * 1e9 / (double)w->measured_ns;
            double share = (double)w->cpu_ns / (double)w->measured_ns;
            if (share > busiest) busiest = share;
        }
        if (w == first) continue;
        histogram_merge(&first->latency, &w->latency);
        if (!first->failed) first->first_error = w->first_error;
        first->failed += w->failed;
    }
    printf("{\"mode\": \"%s\", \"connections\": %d, \"depth\": %d, \"size_bytes\": %d, \"threads\": %d, \"requests\": %llu",
           MODE_NAMES[options.mode], (int)options.connections, (int)options.depth, (int)options.size, (int)options.threads,
           (unsigned long long)first->latency.total);
    printf(", \"requests_per_s\": %.0f", requests_per_s);
    print_quantiles("", &first->latency);
    if (options.mode == FANOUT) print_quantiles("all_notified_", &first->rounds);
    printf(", \"failed\": %llu, \"driver_cpu_share\": %.3f}\n", (unsigned long long)first->failed, busiest);
    if (first->failed)
        fprintf(stderr, "load: %llu requests failed, the first with error %d\n", (unsigned long long)first->failed, first->first_error);
    return first->failed != 0;
}

_Noreturn static void usage(const char *why) {
    fprintf(stderr,
            "load: %s\nusage: load HOST:PORT[,HOST:PORT...] fill|get|set|mixed|create|fanout|sessions|hold [--connections 100] [--depth 1] [--size 100]\n"
            "    [--keys 1000] [--seconds 5] [--warm-up 1] [--threads 1] [--reads 0.9] [--session-timeout-ms 30000] [--prefix /bench]\n"
            "    [--serializable 0]\n",
            why);
    exit(2);
}

/* Room for all connections, and made now: the kernel lets the threads of a process wait for some 10 ms each time its table
   of descriptors grows, which would be taken for the server's time. */
static void make_room_for_files(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int last = fcntl(STDOUT_FILENO, F_DUPFD, (int)options.connections + SPARE_FILES);
    if (last < 0) usage("more connections than the limit of open files (ulimit -Hn) allows");
    close(last);
}

static void parse_addresses(const char *text) {
    char host[64];
    int port, length;
    for (int i = 0;; i++) {
        if (i == SERVERS_MOST) usage("too many addresses");
        if (sscanf(text, "%63[0-9.]:%d%n", host, &port, &length) != 2) usage("an address has to be IPV4:PORT");
        options.servers[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        if (inet_pton(AF_INET, host, &options.servers[i].sin_addr) != 1) usage("an address has to be IPV4:PORT");
        options.server_count = i + 1;
        text += length;
        if (!*text) return;
        if (*text++ != ',') usage("a comma belongs between two addresses");
    }
}

static void parse_options(int argc, char **argv) {
    const struct { const char *name; double *value, least, most; } numbers[] = {
        {"--connections", &options.connections, 1, 99999},  {"--depth", &options.depth, 1, 100000},
        {"--size", &options.size, 0, SCRATCH_BYTES / 2},     {"--keys", &options.keys, 1, MOST_KEYS},
        {"--seconds", &options.seconds, 0.1, 86400},         {"--warm-up", &options.warm_up, 0, 86400},
        {"--threads", &options.threads, 1, 64},              {"--reads", &options.reads, 0, 1},
        {"--session-timeout-ms", &options.session_timeout_ms, 1, INT32_MAX},
        {"--serializable", &options.serializable, 0, 1},
    };
    if (argc < 3 || argc % 2 == 0) usage("an address, a mode and pairs of option and value");
    parse_addresses(argv[1]);
    for (options.mode = 0; options.mode < MODES && strcmp(argv[2], MODE_NAMES[options.mode]); options.mode++) {}
    if (options.mode == MODES) usage("an unknown mode");
    for (int i = 3; i < argc; i += 2) {
        size_t k = 0, count = sizeof numbers / sizeof *numbers;
        if (!strcmp(argv[i], "--prefix")) {
            options.prefix = argv[i + 1];
            continue;
        }
        while (k < count && strcmp(argv[i], numbers[k].name)) k++;
        if (k == count) usage("an unknown option");
        *numbers[k].value = atof(argv[i + 1]);
        if (*numbers[k].value < numbers[k].least || *numbers[k].value > numbers[k].most) usage("a value out of range");
    }
    if (options.threads > options.connections) usage("more threads than connections");
    if ((options.mode == FANOUT || options.mode == HOLD) && options.threads > 1) usage("fanout and hold take one thread");
    if (options.mode == FANOUT && options.connections < 2) usage("fanout takes two connections at least");
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
    make_frames();
    make_room_for_files();
    int threads = (int)options.threads;
    struct worker *workers[64];
    pthread_barrier_init(&all_workers, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        workers[i] = make_worker(i);
        if (pthread_create(&workers[i]->thread, NULL, run_worker, workers[i])) die_errno("pthread_create");
    }
    for (int i = 0; i < threads; i++) pthread_join(workers[i]->thread, NULL);
    return options.mode == HOLD ? 0 : report(workers);
}
