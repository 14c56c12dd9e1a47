import java.util.Arrays;
import java.util.List;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.data.ACL;

/** Sessions: resumed, refused, taken over, cut off, and what their watches miss meanwhile. */
final class SessionChecks {
    private static final List<ACL> OPEN = ZooDefs.Ids.OPEN_ACL_UNSAFE;

    static void addTo(Checks checks) {
        checks.add("session_is_taken_over", SessionChecks::takenOver);
        checks.add("session_with_a_wrong_password_is_refused", SessionChecks::wrongPassword);
        checks.add("closed_session_is_expired", SessionChecks::closed);
        checks.add("reconnect_restores_identities", SessionChecks::identities);
        checks.add("reconnect_catches_up_one_shot_watches", SessionChecks::oneShotCatchUp);
        checks.add("reconnect_keeps_persistent_watches", SessionChecks::persistentKept);
        checks.add("reconnect_catches_up_persistent_watches", SessionChecks::persistentCatchUp);
        checks.add("reconnect_with_many_watches", SessionChecks::manyWatches);
    }

    private static void takenOver() throws Exception {
        try (Client client = new Client()) {
            Client.Events first = new Client.Events();
            Client.Events second = new Client.Events();
            ZooKeeper zk = client.connect(first);
            zk.create("/taken-over", null, OPEN, CreateMode.EPHEMERAL);
            ZooKeeper next = client.resume(second, zk.getSessionId(), zk.getSessionPasswd());
            Checks.eventually("the newer connection has it", () -> second.states.contains(KeeperState.SyncConnected));
            Checks.equal(zk.getSessionId(), next.getSessionId(), "session id");
            Checks.equal(next.getSessionId(), next.exists("/taken-over", false).getEphemeralOwner(), "owner of the ephemeral");
            Checks.eventually("the older one is closed", () -> first.states.contains(KeeperState.Disconnected));
        }
    }

    private static void wrongPassword() throws Exception {
        try (Client client = new Client()) {
            Client.Events first = new Client.Events();
            Client.Events second = new Client.Events();
            ZooKeeper zk = client.connect(first);
            client.resume(second, zk.getSessionId(), "0123456789abcdef".getBytes());
            Checks.eventually("refused as expired", () -> second.states.contains(KeeperState.Expired));
            zk.create("/wrong-password", null, OPEN, CreateMode.EPHEMERAL);
        }
    }

    private static void closed() throws Exception {
        try (Client client = new Client()) {
            Client.Events second = new Client.Events();
            ZooKeeper zk = client.connect();
            zk.create("/closed", null, OPEN, CreateMode.EPHEMERAL);
            zk.close();
            client.resume(second, zk.getSessionId(), zk.getSessionPasswd());
            Checks.eventually("it is gone", () -> second.states.contains(KeeperState.Expired));
            Checks.equal(null, client.connect().exists("/closed", false), "its ephemeral");
        }
    }

    private static ZooKeeper through(Client client, Relay relay, Client.Events events) throws Exception {
        return client.connect(relay.address(), events, new ZKClientConfig());
    }

    private static void cutOffDuring(Relay relay, Client.Events events, Checks.Check meanwhile) throws Exception {
        relay.cut();
        Checks.eventually("disconnected", () -> events.states.contains(KeeperState.Disconnected));
        events.states.clear();
        meanwhile.run();
        relay.restore();
        Checks.eventually("connected again", () -> events.states.contains(KeeperState.SyncConnected));
    }

    private static void identities() throws Exception {
        try (Client client = new Client(); Relay relay = new Relay(Client.server())) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = through(client, relay, events);
            zk.addAuthInfo("digest", "owner:secret".getBytes());
            zk.create("/identities", "1".getBytes(), ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
            cutOffDuring(relay, events, () -> Checks.fails(KeeperException.NoAuthException.class, () -> client.connect().getData("/identities", false, null)));
            Checks.equal("1", new String(zk.getData("/identities", false, null)), "data");
        }
    }

    private static void oneShotCatchUp() throws Exception {
        try (Client client = new Client(); Relay relay = new Relay(Client.server())) {
            Client.Events events = new Client.Events();
            Client.Events untouched = new Client.Events();
            ZooKeeper zk = through(client, relay, events);
            ZooKeeper other = client.connect();
            for (String path : new String[] {"/missed", "/missed/data", "/missed/deleted", "/missed/children", "/missed/untouched"}) {
                other.create(path, null, OPEN, CreateMode.PERSISTENT);
            }
            zk.getData("/missed/data", true, null);
            zk.getData("/missed/deleted", true, null);
            zk.exists("/missed/created", true);
            zk.getChildren("/missed/children", true);
            zk.getData("/missed/untouched", untouched, null);
            zk.getChildren("/missed/untouched", untouched);
            cutOffDuring(relay, events, () -> {
                other.setData("/missed/data", null, -1);
                other.delete("/missed/deleted", -1);
                other.create("/missed/created", null, OPEN, CreateMode.PERSISTENT);
                other.create("/missed/children/child", null, OPEN, CreateMode.PERSISTENT);
            });
            Checks.eventuallyEqual(
                    new java.util.TreeSet<>(Arrays.asList("NodeDataChanged /missed/data", "NodeDeleted /missed/deleted", "NodeCreated /missed/created", "NodeChildrenChanged /missed/children")),
                    () -> new java.util.TreeSet<>(events.changes), "missed events");
            Checks.equal(4, events.changes.size(), "each told once");
            Checks.equal(0, untouched.changes.size(), "events where nothing happened");
            other.setData("/missed/untouched", null, -1);
            other.create("/missed/untouched/child", null, OPEN, CreateMode.PERSISTENT);
            Checks.eventuallyEqual(Arrays.asList("NodeDataChanged /missed/untouched", "NodeChildrenChanged /missed/untouched"), () -> untouched.changes, "watches set again");
        }
    }

    private static void persistentKept() throws Exception {
        try (Client client = new Client(); Relay relay = new Relay(Client.server())) {
            Client.Events connection = new Client.Events();
            Client.Events events = new Client.Events();
            ZooKeeper zk = through(client, relay, connection);
            ZooKeeper other = client.connect();
            other.create("/kept", null, OPEN, CreateMode.PERSISTENT);
            zk.addWatch("/kept", events, AddWatchMode.PERSISTENT_RECURSIVE);
            cutOffDuring(relay, connection, () -> { });
            zk.exists("/kept", false);
            other.create("/kept/child", null, OPEN, CreateMode.PERSISTENT);
            other.setData("/kept", null, -1);
            Checks.eventuallyEqual(Arrays.asList("NodeCreated /kept/child", "NodeDataChanged /kept"), () -> events.changes, "events after the reconnect");
        }
    }

    /** A stock ZooKeeper does not do this: znoded's watches miss nothing. */
    private static void persistentCatchUp() throws Exception {
        try (Client client = new Client(); Relay relay = new Relay(Client.server())) {
            Client.Events connection = new Client.Events();
            Client.Events events = new Client.Events();
            ZooKeeper zk = through(client, relay, connection);
            ZooKeeper other = client.connect();
            other.create("/missed-tree", null, OPEN, CreateMode.PERSISTENT);
            zk.addWatch("/missed-tree", events, AddWatchMode.PERSISTENT_RECURSIVE);
            cutOffDuring(relay, connection, () -> {
                other.create("/missed-tree/a", null, OPEN, CreateMode.PERSISTENT);
                other.create("/missed-tree/b", null, OPEN, CreateMode.PERSISTENT);
                other.setData("/missed-tree/a", null, -1);
                other.delete("/missed-tree/b", -1);
            });
            Checks.eventuallyEqual(
                    Arrays.asList("NodeCreated /missed-tree/a", "NodeCreated /missed-tree/b", "NodeDataChanged /missed-tree/a", "NodeDeleted /missed-tree/b"),
                    () -> events.changes, "every missed event, in order");
        }
    }

    private static void manyWatches() throws Exception {
        try (Client client = new Client(); Relay relay = new Relay(Client.server())) {
            int count = 3_000;
            String longName = new String(new char[100]).replace('\0', 'x');
            Client.Events connection = new Client.Events();
            Client.Events events = new Client.Events();
            ZooKeeper zk = through(client, relay, connection);
            java.util.concurrent.CountDownLatch set = new java.util.concurrent.CountDownLatch(count);
            for (int i = 0; i < count; i++) {
                zk.exists("/many-" + longName + i, events, (code, path, context, stat) -> set.countDown(), null);
            }
            set.await();
            cutOffDuring(relay, connection, () -> client.connect().create("/many-" + longName + 7, null, OPEN, CreateMode.PERSISTENT));
            Checks.eventuallyEqual(1, events.changes::size, "missed events");
            ZooKeeper other = client.connect();
            zk.exists("/", false);
            other.create("/many-" + longName + (count - 1), null, OPEN, CreateMode.PERSISTENT);
            Checks.eventuallyEqual(2, events.changes::size, "events in all");
        }
    }
}
