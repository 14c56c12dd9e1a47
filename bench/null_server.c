/* A server that does nothing, to find out how fast the load driver is by itself.
 *
 *   null_server PORT [SIZE]     prints a line once it serves 127.0.0.1:PORT, until it is killed; getData answers SIZE bytes (100)
 *
 * It accepts every session, answers every request with the same bytes and keeps no znode. A getData that asks for a watch marks its
 * connection; the next setData notifies all marked connections. What the driver reaches here is its ceiling: a real server measured well
 * below it was not held back by the driver. */
#define _GNU_SOURCE
#include "wire.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 1 << 16, EVENTS = 512, WATCH_EVENT_BYTES = 64 };

struct client {
    bool has_session, watches;
    uint32_t armed; /* epoll events asked for */
    struct buffer rest, out;
};

static struct client *clients[MOST_CONNECTIONS]; /* by file descriptor */
static int watchers[MOST_CONNECTIONS], watcher_count; /* file descriptors */
static int epoll_fd;
static struct buffer get_reply, stat_reply, empty_reply, session_reply, watch_event;
static uint8_t scratch[SCRATCH_BYTES];

/* A frame of `payload_bytes` zeros with err 0; the xid is filled in for each reply. */
static void make_reply(struct buffer *b, size_t payload_bytes) {
    put_int(b, (int32_t)payload_bytes);
    memset(extend(b, payload_bytes), 0, payload_bytes);
}

static void make_replies(size_t size_bytes) {
    make_reply(&empty_reply, REPLY_HEADER_BYTES);
    make_reply(&stat_reply, REPLY_HEADER_BYTES + STAT_BYTES);
    make_reply(&get_reply, REPLY_HEADER_BYTES + 4 + size_bytes + STAT_BYTES);
    store_int(get_reply.bytes + 4 + REPLY_HEADER_BYTES, (int32_t)size_bytes);
    make_reply(&session_reply, CONNECT_REPLY_BYTES);
    store_int(session_reply.bytes + 8, 30000); /* the session's timeout in ms */
    store_int(session_reply.bytes + 16, 1);    /* its id */
    store_int(session_reply.bytes + 20, 16);   /* bytes of its password */
    make_reply(&watch_event, WATCH_EVENT_BYTES);
    store_int(watch_event.bytes + 4, NOTIFICATION_XID);
}

static void answer(struct client *client, const struct buffer *reply, int32_t xid) {
    uint8_t *at = extend(&client->out, reply->end);
    memcpy(at, reply->bytes, reply->end);
    store_int(at + 4, xid);
}

static void flush(int fd) {
    struct client *client = clients[fd];
    struct buffer *out = &client->out;
    while (out->start < out->end) {
        ssize_t sent = send(fd, out->bytes + out->start, out->end - out->start, MSG_NOSIGNAL);
        if (sent < 0) break;
        out->start += (size_t)sent;
    }
    struct epoll_event event = {.events = EPOLLIN | (out->start < out->end ? EPOLLOUT : 0), .data.fd = fd};
    if (client->armed != event.events) epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event);
    client->armed = event.events;
}

static void notify_watchers(void) {
    for (; watcher_count; watcher_count--) {
        int fd = watchers[watcher_count - 1];
        if (!clients[fd] || !clients[fd]->watches) continue;
        clients[fd]->watches = false;
        answer(clients[fd], &watch_event, NOTIFICATION_XID);
        flush(fd);
    }
}

static void watch(int fd) {
    if (clients[fd]->watches || watcher_count == MOST_CONNECTIONS) return;
    clients[fd]->watches = true;
    watchers[watcher_count++] = fd;
}

static void on_frame(int fd, const uint8_t *payload, size_t payload_bytes) {
    struct client *client = clients[fd];
    if (!client->has_session) {
        client->has_session = true;
        answer(client, &session_reply, 0);
        return;
    }
    if (payload_bytes < 8) die("null_server: a request without a header");
    int32_t xid = load_int(payload), op = load_int(payload + 4);
    if (op == OP_GET_DATA) {
        if (payload[payload_bytes - 1]) watch(fd);
        answer(client, &get_reply, xid);
    } else {
        answer(client, op == OP_SET_DATA ? &stat_reply : &empty_reply, xid);
        if (op == OP_SET_DATA) notify_watchers();
    }
}

static void drop(int fd) {
    free(clients[fd]->rest.bytes);
    free(clients[fd]->out.bytes);
    free(clients[fd]);
    clients[fd] = NULL;
    close(fd);
}

static void on_readable(int fd) {
    struct client *client = clients[fd];
    size_t have = client->rest.end - client->rest.start;
    memcpy(scratch, client->rest.bytes + client->rest.start, have);
    client->rest.start = client->rest.end;
    ssize_t got = recv(fd, scratch + have, sizeof scratch - have, 0);
    if (got <= 0) {
        drop(fd);
        return;
    }
    have += (size_t)got;
    size_t at = 0;
    while (have - at >= 4 && have - at - 4 >= (size_t)load_int(scratch + at)) {
        size_t payload_bytes = (size_t)load_int(scratch + at);
        on_frame(fd, scratch + at + 4, payload_bytes);
        at += 4 + payload_bytes;
    }
    memcpy(extend(&client->rest, have - at), scratch + at, have - at);
    flush(fd);
}

static void accept_all(int listener) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        if (fd >= MOST_CONNECTIONS) die("null_server: too many connections");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        clients[fd] = calloc(1, sizeof *clients[fd]);
        clients[fd]->armed = EPOLLIN;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
    }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) die_errno("null_server: listen");
    return fd;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: null_server PORT [SIZE]\n");
        return 2;
    }
    make_replies(argc > 2 ? (size_t)atoi(argv[2]) : 100);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    epoll_fd = epoll_create1(0);
    int listener = listen_on(atoi(argv[1]));
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    printf("serving\n");
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(epoll_fd, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) accept_all(listener);
            else if (clients[fd] && events[i].events & EPOLLOUT) flush(fd);
            else if (clients[fd]) on_readable(fd);
        }
    }
}
