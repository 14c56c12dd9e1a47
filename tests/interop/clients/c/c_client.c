/* ZooKeeper's C client against one server: HOST:PORT. Prints `ok NAME` or `FAIL NAME: why` for each check. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define SESSION_TIMEOUT_MS 6000
#define WAIT_S 20
#define EVENTS_LIMIT 32

/* What the watcher of one client was told, and its connection state. */
struct seen {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int state;
    int count;
    char events[EVENTS_LIMIT][256];
};

static const char *server;
static char why[1024];

#define CHECK(condition, ...)                                  \
    do {                                                       \
        if (!(condition)) {                                    \
            snprintf(why, sizeof why, __VA_ARGS__);            \
            return 0;                                          \
        }                                                      \
    } while (0)
#define CODE(expected, call)                                                                   \
    do {                                                                                       \
        int code_ = (call);                                                                    \
        CHECK(code_ == (expected), "%s: expected %d, got %d", #call, (int)(expected), code_);  \
    } while (0)

static void watcher(zhandle_t *zk, int type, int state, const char *path, void *context)
{
    struct seen *seen = context;
    (void)zk;
    pthread_mutex_lock(&seen->lock);
    if (type == ZOO_SESSION_EVENT)
        seen->state = state;
    else if (seen->count < EVENTS_LIMIT)
        snprintf(seen->events[seen->count++], sizeof seen->events[0], "%d %s", type, path);
    pthread_cond_broadcast(&seen->changed);
    pthread_mutex_unlock(&seen->lock);
}

static struct seen *new_seen(void)
{
    struct seen *seen = calloc(1, sizeof *seen);
    pthread_mutex_init(&seen->lock, NULL);
    pthread_cond_init(&seen->changed, NULL);
    return seen;
}

/* Waits until the state is reached or, with state 0, until that many events were seen. */
static int await(struct seen *seen, int state, int count)
{
    struct timespec deadline;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += WAIT_S;
    pthread_mutex_lock(&seen->lock);
    while (!late && (state ? seen->state != state : seen->count < count))
        late = pthread_cond_timedwait(&seen->changed, &seen->lock, &deadline);
    pthread_mutex_unlock(&seen->lock);
    return !late;
}

static zhandle_t *start(struct seen *seen, const clientid_t *session)
{
    return zookeeper_init(server, watcher, SESSION_TIMEOUT_MS, session, seen, 0);
}

static zhandle_t *connect_client(struct seen *seen)
{
    zhandle_t *zk = start(seen, NULL);
    await(seen, ZOO_CONNECTED_STATE, 0);
    return zk;
}

static int create(zhandle_t *zk, const char *path, const char *data, int mode)
{
    return zoo_create(zk, path, data, data ? (int)strlen(data) : -1, &ZOO_OPEN_ACL_UNSAFE, mode, NULL, 0);
}

static int create_modes(zhandle_t *zk, struct seen *seen)
{
    char path[64];
    struct Stat stat;
    (void)seen;
    CODE(ZOK, create(zk, "/modes", NULL, ZOO_PERSISTENT));
    CODE(ZOK, zoo_create2(zk, "/modes/e", "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, path, sizeof path, &stat));
    CHECK(stat.ephemeralOwner == zoo_client_id(zk)->client_id, "the owner of the ephemeral is another session");
    CODE(ZOK, zoo_create(zk, "/modes/s-", "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_SEQUENTIAL, path, sizeof path));
    CHECK(!strcmp(path, "/modes/s-0000000001"), "the sequential node is %s", path);
    CODE(ZOK, zoo_create2(zk, "/modes/c", "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, path, sizeof path, &stat));
    CODE(ZOK, zoo_create2_ttl(zk, "/modes/t", "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_WITH_TTL, 60000, path, sizeof path, &stat));
    CHECK(stat.ephemeralOwner == 0, "a TTL node has an owner");
    CODE(ZNODEEXISTS, create(zk, "/modes", NULL, ZOO_PERSISTENT));
    CODE(ZNONODE, create(zk, "/missing/child", NULL, ZOO_PERSISTENT));
    CODE(ZNOCHILDRENFOREPHEMERALS, create(zk, "/modes/e/child", NULL, ZOO_PERSISTENT));
    CODE(ZNOTEMPTY, zoo_delete(zk, "/modes", -1));
    return 1;
}

static int data_and_versions(zhandle_t *zk, struct seen *seen)
{
    char buffer[16];
    int length = sizeof buffer;
    struct Stat stat;
    (void)seen;
    CODE(ZOK, create(zk, "/data", "one", ZOO_PERSISTENT));
    CODE(ZOK, zoo_set2(zk, "/data", "three", 5, 0, &stat));
    CHECK(stat.version == 1 && stat.dataLength == 5, "version %d, length %d", stat.version, stat.dataLength);
    CODE(ZBADVERSION, zoo_set(zk, "/data", "x", 1, 0));
    CODE(ZOK, zoo_get(zk, "/data", 0, buffer, &length, &stat));
    CHECK(length == 5 && !memcmp(buffer, "three", 5), "%d bytes of other data", length);
    CODE(ZOK, zoo_set(zk, "/data", NULL, -1, -1));
    length = sizeof buffer;
    CODE(ZOK, zoo_get(zk, "/data", 0, buffer, &length, &stat));
    CHECK(length == -1, "null data has length %d", length);
    return 1;
}

static int children(zhandle_t *zk, struct seen *seen)
{
    struct String_vector names;
    struct Stat stat;
    (void)seen;
    CODE(ZOK, create(zk, "/children", NULL, ZOO_PERSISTENT));
    CODE(ZOK, create(zk, "/children/a", NULL, ZOO_PERSISTENT));
    CODE(ZOK, create(zk, "/children/b", NULL, ZOO_PERSISTENT));
    CODE(ZOK, zoo_get_children2(zk, "/children", 0, &names, &stat));
    CHECK(names.count == 2 && stat.numChildren == 2 && stat.cversion == 2, "%d names, cversion %d", names.count, stat.cversion);
    deallocate_String_vector(&names);
    return 1;
}

static int one_shot_watches(zhandle_t *zk, struct seen *seen)
{
    struct String_vector names;
    CODE(ZNONODE, zoo_exists(zk, "/watched", 1, NULL));
    CODE(ZOK, create(zk, "/watched", NULL, ZOO_PERSISTENT));
    CHECK(await(seen, 0, 1), "no event for the create");
    CODE(ZOK, zoo_exists(zk, "/watched", 1, NULL));
    CODE(ZOK, zoo_get_children(zk, "/watched", 1, &names));
    deallocate_String_vector(&names);
    CODE(ZOK, zoo_set(zk, "/watched", "x", 1, -1));
    CHECK(await(seen, 0, 2), "no event for the change");
    CODE(ZOK, create(zk, "/watched/child", NULL, ZOO_PERSISTENT));
    CHECK(await(seen, 0, 3), "no event for the new child");
    CHECK(!strcmp(seen->events[0], "1 /watched") && !strcmp(seen->events[1], "3 /watched") && !strcmp(seen->events[2], "4 /watched"),
          "events: %s, %s, %s", seen->events[0], seen->events[1], seen->events[2]);
    return 1;
}

static int watches_removed(zhandle_t *zk, struct seen *seen)
{
    struct seen *removed = new_seen();
    CODE(ZOK, create(zk, "/removed", NULL, ZOO_PERSISTENT));
    CODE(ZOK, zoo_wexists(zk, "/removed", watcher, removed, NULL));
    CODE(ZOK, zoo_remove_watches(zk, "/removed", ZWATCHTYPE_DATA, watcher, removed, 0));
    CODE(ZNOWATCHER, zoo_remove_watches(zk, "/removed", ZWATCHTYPE_DATA, watcher, removed, 0));
    CODE(ZOK, zoo_set(zk, "/removed", "x", 1, -1));
    CODE(ZOK, zoo_exists(zk, "/removed", 1, NULL));
    CODE(ZOK, zoo_set(zk, "/removed", "x", 1, -1));
    CHECK(await(seen, 0, 1), "no event for the watch that stayed");
    CHECK(removed->count == 0, "an event came after the removal: %s", removed->events[0]);
    return 1;
}

static int multi_commits(zhandle_t *zk, struct seen *seen)
{
    char path[64];
    struct Stat stat;
    zoo_op_t ops[4];
    zoo_op_result_t results[4];
    (void)seen;
    zoo_create_op_init(&ops[0], "/multi", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path);
    zoo_check_op_init(&ops[1], "/multi", 0);
    zoo_set_op_init(&ops[2], "/multi", "y", 1, 0, &stat);
    zoo_delete_op_init(&ops[3], "/multi", 1);
    CODE(ZOK, zoo_multi(zk, 4, ops, results));
    CHECK(!strcmp(path, "/multi") && stat.version == 1, "path %s, version %d", path, stat.version);
    CODE(ZNONODE, zoo_exists(zk, "/multi", 0, NULL));
    return 1;
}

static int multi_rolls_back(zhandle_t *zk, struct seen *seen)
{
    zoo_op_t ops[3];
    zoo_op_result_t results[3];
    (void)seen;
    zoo_create_op_init(&ops[0], "/rolled-back", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    zoo_delete_op_init(&ops[1], "/missing", -1);
    zoo_create_op_init(&ops[2], "/never", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    CODE(ZNONODE, zoo_multi(zk, 3, ops, results));
    CHECK(results[0].err == ZOK && results[1].err == ZNONODE && results[2].err == ZRUNTIMEINCONSISTENCY,
          "results %d %d %d", results[0].err, results[1].err, results[2].err);
    CODE(ZNONODE, zoo_exists(zk, "/rolled-back", 0, NULL));
    return 1;
}

static void authenticated(int code, const void *seen)
{
    struct seen *answered = (struct seen *)seen;
    pthread_mutex_lock(&answered->lock);
    answered->state = code == ZOK ? ZOO_CONNECTED_STATE : code;
    pthread_cond_broadcast(&answered->changed);
    pthread_mutex_unlock(&answered->lock);
}

static int acl_and_auth(zhandle_t *zk, struct seen *seen)
{
    struct seen *answered = new_seen();
    struct ACL_vector acl;
    struct Stat stat;
    zhandle_t *stranger = connect_client(new_seen());
    (void)seen;
    CODE(ZINVALIDACL, zoo_create(zk, "/nobody", "x", 1, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
    CODE(ZOK, zoo_add_auth(zk, "digest", "owner:secret", 12, authenticated, answered));
    CHECK(await(answered, ZOO_CONNECTED_STATE, 0), "auth is not answered: %d", answered->state);
    CODE(ZOK, zoo_create(zk, "/owned", "x", 1, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
    CODE(ZOK, zoo_get_acl(zk, "/owned", &acl, &stat));
    CHECK(acl.count == 1 && !strcmp(acl.data[0].id.id, "owner:Vj++wdU3sMAbt+g9TyKj1BT+usI="), "the stored ACL is %s", acl.data[0].id.id);
    CODE(ZNOAUTH, zoo_set(stranger, "/owned", "y", 1, -1));
    CODE(ZNOAUTH, zoo_set_acl(stranger, "/owned", -1, &ZOO_OPEN_ACL_UNSAFE));
    CODE(ZOK, zoo_set_acl(zk, "/owned", 0, &ZOO_OPEN_ACL_UNSAFE));
    CODE(ZOK, zoo_set(stranger, "/owned", "y", 1, -1));
    zookeeper_close(stranger);
    return 1;
}

static int config_is_read(zhandle_t *zk, struct seen *seen)
{
    char buffer[1024];
    int length = sizeof buffer;
    struct Stat stat;
    (void)seen;
    CODE(ZOK, zoo_getconfig(zk, 0, buffer, &length, &stat));
    return 1;
}

/* What `c_client SERVER abandon` does: opens a session, writes its id and password to the standard output, and dies
   without closing it; the ephemeral /resumed is all that it leaves. */
static int abandon(void)
{
    zhandle_t *zk = connect_client(new_seen());
    if (create(zk, "/resumed", NULL, ZOO_EPHEMERAL) != ZOK)
        return 1;
    _exit(write(STDOUT_FILENO, zoo_client_id(zk), sizeof(clientid_t)) == sizeof(clientid_t) ? 0 : 1);
}

/* A session that another process left. It runs this program anew: a child of a process with threads that went on by
   itself could wait for ever for a lock that one of them held. */
static int abandoned_session(clientid_t *session)
{
    int ends[2];
    if (pipe(ends))
        return 0;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "c_client", server, "abandon", NULL);
        _exit(127);
    }
    close(ends[1]);
    int got = read(ends[0], session, sizeof *session) == sizeof *session;
    close(ends[0]);
    waitpid(child, NULL, 0);
    return got;
}

static int session_resumed(zhandle_t *zk, struct seen *seen)
{
    struct seen *next_seen = new_seen();
    clientid_t session;
    struct Stat stat;
    (void)seen;
    CHECK(abandoned_session(&session), "the first process got no session");
    zhandle_t *next = start(next_seen, &session);
    CHECK(await(next_seen, ZOO_CONNECTED_STATE, 0), "the session is not resumed, state %d", next_seen->state);
    CODE(ZOK, zoo_exists(next, "/resumed", 0, &stat));
    CHECK(stat.ephemeralOwner == session.client_id, "the ephemeral has another owner");
    zookeeper_close(next);
    CODE(ZNONODE, zoo_exists(zk, "/resumed", 0, NULL));
    return 1;
}

static int session_refused(zhandle_t *zk, struct seen *seen)
{
    struct seen *next_seen = new_seen();
    clientid_t session = *zoo_client_id(zk);
    (void)seen;
    session.passwd[0] ^= 1;
    zhandle_t *next = start(next_seen, &session);
    CHECK(await(next_seen, ZOO_EXPIRED_SESSION_STATE, 0), "state %d with a wrong password", next_seen->state);
    zookeeper_close(next);
    CODE(ZOK, zoo_exists(zk, "/", 0, NULL));
    return 1;
}

static int ephemerals_end(zhandle_t *zk, struct seen *seen)
{
    zhandle_t *owner = connect_client(new_seen());
    CODE(ZOK, create(owner, "/ends", NULL, ZOO_EPHEMERAL));
    CODE(ZOK, zoo_exists(zk, "/ends", 1, NULL));
    zookeeper_close(owner);
    CHECK(await(seen, 0, 1) && !strcmp(seen->events[0], "2 /ends"), "event: %s", seen->events[0]);
    CODE(ZNONODE, zoo_exists(zk, "/ends", 0, NULL));
    return 1;
}

struct counted {
    struct seen *seen;
    int next;
    int out_of_order;
};

struct numbered {
    struct counted *counted;
    int number;
};

static void answered_in_turn(int code, const char *value, const void *data)
{
    struct numbered *mine = (struct numbered *)data;
    struct counted *all = mine->counted;
    (void)value;
    pthread_mutex_lock(&all->seen->lock);
    all->out_of_order += code != ZOK || all->next != mine->number;
    all->next++;
    all->seen->count = all->next;
    pthread_cond_broadcast(&all->seen->changed);
    pthread_mutex_unlock(&all->seen->lock);
}

static int pipelined_creates(zhandle_t *zk, struct seen *seen)
{
    enum { COUNT = 1000 };
    static struct numbered numbers[COUNT];
    struct counted all = {new_seen(), 0, 0};
    (void)seen;
    CODE(ZOK, create(zk, "/pipelined", NULL, ZOO_PERSISTENT));
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = (struct numbered){&all, i};
        CODE(ZOK, zoo_acreate(zk, "/pipelined/n-", "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_SEQUENTIAL, answered_in_turn, &numbers[i]));
    }
    CHECK(await(all.seen, 0, COUNT), "%d of %d answered", all.next, COUNT);
    CHECK(all.out_of_order == 0, "%d failed or out of order", all.out_of_order);
    return 1;
}

static const struct {
    const char *name;
    int (*run)(zhandle_t *, struct seen *);
} checks[] = {
    {"create_modes", create_modes},
    {"data_and_versions", data_and_versions},
    {"children", children},
    {"one_shot_watches", one_shot_watches},
    {"watches_removed", watches_removed},
    {"multi_commits", multi_commits},
    {"multi_rolls_back", multi_rolls_back},
    {"acl_and_auth", acl_and_auth},
    {"config_is_read", config_is_read},
    {"session_resumed", session_resumed},
    {"session_refused", session_refused},
    {"ephemerals_end", ephemerals_end},
    {"pipelined_creates", pipelined_creates},
};

int main(int argc, char **argv)
{
    int failed = 0;
    if (argc < 2)
        return 2;
    server = argv[1];
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    if (argc > 2)
        return abandon();
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        struct seen *seen = new_seen();
        zhandle_t *zk = connect_client(seen);
        int ok = checks[i].run(zk, seen);
        printf(ok ? "ok %s\n" : "FAIL %s: %s\n", checks[i].name, why);
        failed += !ok;
        zookeeper_close(zk);
    }
    return failed ? 1 : 0;
}
