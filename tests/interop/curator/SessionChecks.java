import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;

/** Losing a connection, and losing a session. */
final class SessionChecks {
    static void addTo(Checks checks) {
        checks.add("session_reconnects", SessionChecks::reconnects);
        checks.add("session_taken_over_and_ended", SessionChecks::takenOver);
        checks.add("session_expires_while_cut_off", SessionChecks::expires);
    }

    private static List<ConnectionState> states(CuratorFramework client) {
        List<ConnectionState> states = new CopyOnWriteArrayList<>();
        client.getConnectionStateListenable().addListener((source, state) -> states.add(state));
        return states;
    }

    private static void reconnects() throws Exception {
        try (Curator curator = new Curator(); Relay relay = new Relay(Curator.servers())) {
            CuratorFramework client = curator.through(relay);
            CuratorFramework other = curator.client();
            List<ConnectionState> states = states(client);
            List<String> events = new CopyOnWriteArrayList<>();
            long session = client.getZookeeperClient().getZooKeeper().getSessionId();
            client.create().creatingParentsIfNeeded().withMode(CreateMode.EPHEMERAL).forPath("/sessions/mine", "1".getBytes());
            client.getData().usingWatcher((Watcher) event -> {
                if (event.getType() != Watcher.Event.EventType.None) {
                    events.add(event.getType() + " " + event.getPath());
                }
            }).forPath("/sessions/mine");
            CuratorCache cache = CuratorCache.build(client, "/sessions");
            cache.start();
            Checks.eventually("cached", () -> cache.get("/sessions/mine").isPresent());
            relay.cut();
            Checks.eventually("suspended", () -> states.contains(ConnectionState.SUSPENDED));
            other.setData().forPath("/sessions/mine", "2".getBytes());
            other.create().forPath("/sessions/missed", "3".getBytes());
            relay.restore();
            Checks.eventually("reconnected", () -> states.contains(ConnectionState.RECONNECTED));
            Checks.equal(session, client.getZookeeperClient().getZooKeeper().getSessionId(), "session id");
            Checks.eventually("the one-shot watch catches up", () -> events.contains("NodeDataChanged /sessions/mine"));
            Checks.eventually("the cache catches up", () -> cache.get("/sessions/missed").isPresent() && "2".equals(new String(cache.get("/sessions/mine").get().getData())));
            other.setData().forPath("/sessions/missed", "4".getBytes());
            Checks.eventually("the cache goes on", () -> "4".equals(new String(cache.get("/sessions/missed").get().getData())));
            Checks.that(other.checkExists().forPath("/sessions/mine") != null, "the ephemeral survived");
            Checks.that(!states.contains(ConnectionState.LOST), "the session was never lost");
            cache.close();
        }
    }

    /** What Curator's own tests do to end a session: open it a second time, and close that. */
    private static void takenOver() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            CuratorFramework other = curator.client();
            List<ConnectionState> states = states(client);
            PersistentNode node = new PersistentNode(client, CreateMode.EPHEMERAL, false, "/sessions-ended", "1".getBytes());
            node.start();
            Checks.that(node.waitForInitialCreate(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "created");
            ZooKeeper mine = client.getZookeeperClient().getZooKeeper();
            long session = mine.getSessionId();
            List<Watcher.Event.KeeperState> duplicate = new CopyOnWriteArrayList<>();
            ZooKeeper second = new ZooKeeper(Curator.servers(), Curator.SESSION_TIMEOUT_MS, event -> duplicate.add(event.getState()), session, mine.getSessionPasswd());
            Checks.eventually("the second connection has the session", () -> duplicate.contains(Watcher.Event.KeeperState.SyncConnected));
            second.close();
            Checks.eventually("lost", () -> states.contains(ConnectionState.LOST));
            Checks.eventually("reconnected", () -> states.contains(ConnectionState.RECONNECTED));
            Checks.that(client.getZookeeperClient().getZooKeeper().getSessionId() != session, "a new session");
            Checks.eventually("the persistent node is back under the new session", () -> {
                org.apache.zookeeper.data.Stat stat = other.checkExists().forPath("/sessions-ended");
                return stat != null && stat.getEphemeralOwner() == client.getZookeeperClient().getZooKeeper().getSessionId();
            });
            node.close();
        }
    }

    private static void expires() throws Exception {
        try (Curator curator = new Curator(); Relay relay = new Relay(Curator.servers())) {
            CuratorFramework client = curator.start(Curator.builder(relay.address()).sessionTimeoutMs(2_000).build());
            CuratorFramework other = curator.client();
            List<ConnectionState> states = states(client);
            client.create().withMode(CreateMode.EPHEMERAL).forPath("/sessions-expired");
            relay.cut();
            Checks.eventually("the ephemeral goes with its session", () -> other.checkExists().forPath("/sessions-expired") == null);
            relay.restore();
            Checks.eventually("lost, then reconnected", () -> states.contains(ConnectionState.LOST) && states.contains(ConnectionState.RECONNECTED));
            client.create().withMode(CreateMode.EPHEMERAL).forPath("/sessions-expired");
        }
    }
}
