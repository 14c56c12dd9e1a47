import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.ZKClientConfig;

/** The connected ZooKeeper clients of one check, and what their default watchers saw; closing it closes them all. */
final class Client implements AutoCloseable {
    /** The longest that the member grants: a busy machine is no failure. */
    static final int SESSION_TIMEOUT_MS = 10_000;

    private static String server;

    private final Deque<ZooKeeper> clients = new ConcurrentLinkedDeque<>();

    static void use(String serverAddress) {
        server = serverAddress;
    }

    static String server() {
        return server;
    }

    ZooKeeper connect() throws Exception {
        return connect(server, new Events(), new ZKClientConfig());
    }

    ZooKeeper connect(Events events) throws Exception {
        return connect(server, events, new ZKClientConfig());
    }

    ZooKeeper connect(String address, Events events, ZKClientConfig config) throws Exception {
        return connected(new ZooKeeper(address, SESSION_TIMEOUT_MS, events, config), events);
    }

    /** A client for the session that another one opened. */
    ZooKeeper resume(Events events, long session, byte[] password) throws Exception {
        ZooKeeper client = new ZooKeeper(server, SESSION_TIMEOUT_MS, events, session, password);
        clients.push(client);
        return client;
    }

    ZooKeeper connected(ZooKeeper client, Events events) throws Exception {
        clients.push(client);
        Checks.eventually("the client connects", () -> events.states.contains(Watcher.Event.KeeperState.SyncConnected));
        return client;
    }

    static ZKClientConfig config(Map<String, String> properties) {
        ZKClientConfig config = new ZKClientConfig();
        properties.forEach(config::setProperty);
        return config;
    }

    @Override
    public void close() throws Exception {
        for (ZooKeeper client : clients) {
            client.close();
        }
    }

    /** A watcher that keeps what it was told: changes as `Type path`, and connection states. */
    static final class Events implements Watcher {
        final List<String> changes = new CopyOnWriteArrayList<>();
        final List<Event.KeeperState> states = new CopyOnWriteArrayList<>();

        @Override
        public void process(WatchedEvent event) {
            if (event.getType() == Event.EventType.None) {
                states.add(event.getState());
            } else {
                changes.add(event.getType() + " " + event.getPath());
            }
        }
    }
}
