import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.RetryPolicy;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryNTimes;
import org.apache.curator.retry.RetryOneTime;

/** The connected Curator clients of one check; closing it closes them all. */
final class Curator implements AutoCloseable {
    /** The longest that the member grants: a busy machine is no failure. */
    static final int SESSION_TIMEOUT_MS = 10_000;

    /** Each part of a check waits at most this long for a lock, a barrier or a latch that it has to get. */
    static final long WAIT_SECONDS = 20;

    /** What is right where servers stay: what fails twice is an error. */
    private static final RetryPolicy RETRY_ONCE = new RetryOneTime(100);

    /** What is right where they do not: for as long as another one needs to take over. */
    private static final RetryPolicy RETRY_LONG = new RetryNTimes(100, 100);

    private static String servers;
    private static String superPassword;
    private static RetryPolicy retryPolicy;

    private final Deque<CuratorFramework> clients = new ConcurrentLinkedDeque<>();

    static void use(String connectString, String superuserPassword, boolean serversMayEnd) {
        servers = connectString;
        superPassword = superuserPassword;
        retryPolicy = serversMayEnd ? RETRY_LONG : RETRY_ONCE;
    }

    /** The connection string with all servers. */
    static String servers() {
        return servers;
    }

    /** Deletes all nodes but ZooKeeper's own. */
    static void wipe() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework superuser = curator.superuser();
            for (String child : superuser.getChildren().forPath("/")) {
                if (!child.equals("zookeeper")) {
                    superuser.delete().quietly().deletingChildrenIfNeeded().forPath("/" + child);
                }
            }
        }
    }

    CuratorFramework client() throws InterruptedException {
        return start(builder(servers).build());
    }

    CuratorFramework client(String user, String password) throws InterruptedException {
        return start(builder(servers).authorization("digest", (user + ":" + password).getBytes()).build());
    }

    CuratorFramework superuser() throws InterruptedException {
        return client("super", superPassword);
    }

    CuratorFramework through(Relay relay) throws InterruptedException {
        return start(builder(relay.address()).build());
    }

    /** Ensemble tracking stays off but where it is the subject: it would lead clients around the relay. */
    static CuratorFrameworkFactory.Builder builder(String address) {
        return CuratorFrameworkFactory.builder()
                .connectString(address)
                .sessionTimeoutMs(SESSION_TIMEOUT_MS)
                .connectionTimeoutMs(5_000)
                .retryPolicy(retryPolicy)
                .ensembleTracker(false);
    }

    CuratorFramework start(CuratorFramework client) throws InterruptedException {
        clients.push(client);
        client.start();
        Checks.that(client.blockUntilConnected((int) WAIT_SECONDS, TimeUnit.SECONDS), "the client connects");
        return client;
    }

    /** Runs the same work in several threads at once, each with a client of its own, and waits for all of them. */
    void concurrently(int threads, ClientWork work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<Callable<Void>> tasks = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                CuratorFramework client = client();
                tasks.add(() -> {
                    work.run(client);
                    return null;
                });
            }
            for (Future<Void> done : pool.invokeAll(tasks)) {
                done.get();
            }
        } finally {
            pool.shutdownNow();
        }
    }

    interface ClientWork {
        void run(CuratorFramework client) throws Exception;
    }

    @Override
    public void close() {
        clients.forEach(CuratorFramework::close);
    }
}
