import java.util.Arrays;
import java.util.Collections;
import java.util.TreeSet;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/** Watches of every kind, and their removal. */
final class WatchChecks {
    static void addTo(Checks checks) {
        checks.add("watch_on_data", WatchChecks::data);
        checks.add("watch_on_a_missing_node", WatchChecks::missing);
        checks.add("watch_on_children", WatchChecks::children);
        checks.add("deletion_is_told_once", WatchChecks::deletionOnce);
        checks.add("watch_precedes_the_writers_reply", WatchChecks::precedesReply);
        checks.add("persistent_watch", WatchChecks::persistent);
        checks.add("persistent_recursive_watch", WatchChecks::recursive);
        checks.add("one_watch_is_removed", WatchChecks::removeOne);
        checks.add("all_watches_are_removed", WatchChecks::removeAll);
        checks.add("watches_are_removed_by_kind", WatchChecks::removeByKind);
        checks.add("ephemerals_end_with_an_event", WatchChecks::ephemeralEnds);
    }

    private static void create(ZooKeeper zk, String path) throws Exception {
        zk.create(path, null, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
    }

    private static void data() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect();
            create(zk, "/watch-data");
            zk.getData("/watch-data", events, null);
            ZooKeeper other = client.connect();
            other.setData("/watch-data", null, -1);
            other.setData("/watch-data", null, -1);
            Checks.eventuallyEqual(Collections.singletonList("NodeDataChanged /watch-data"), () -> events.changes, "one event");
        }
    }

    private static void missing() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect();
            Checks.equal(null, zk.exists("/watch-missing", events), "not there yet");
            create(client.connect(), "/watch-missing");
            Checks.eventuallyEqual(Collections.singletonList("NodeCreated /watch-missing"), () -> events.changes, "one event");
        }
    }

    private static void children() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect();
            create(zk, "/watch-children");
            zk.getChildren("/watch-children", events);
            zk.setData("/watch-children", null, -1);
            create(zk, "/watch-children/a");
            create(zk, "/watch-children/b");
            Checks.eventuallyEqual(Collections.singletonList("NodeChildrenChanged /watch-children"), () -> events.changes, "one event");
        }
    }

    private static void deletionOnce() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect();
            create(zk, "/watch-deletion");
            zk.getData("/watch-deletion", events, null);
            zk.getChildren("/watch-deletion", events);
            zk.delete("/watch-deletion", -1);
            zk.exists("/watch-deletion", false);
            Checks.eventuallyEqual(Collections.singletonList("NodeDeleted /watch-deletion"), () -> events.changes, "one event");
        }
    }

    private static void precedesReply() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect();
            create(zk, "/watch-order");
            zk.getData("/watch-order", events, null);
            int[] seenAtReply = {-1};
            zk.setData("/watch-order", null, -1, (code, path, context, stat) -> seenAtReply[0] = events.changes.size(), null);
            Checks.eventuallyEqual(1, () -> seenAtReply[0], "events seen when the reply came");
        }
    }

    private static void persistent() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect();
            zk.addWatch("/watch-persistent", events, AddWatchMode.PERSISTENT);
            ZooKeeper other = client.connect();
            for (int i = 0; i < 2; i++) {
                create(other, "/watch-persistent");
                other.setData("/watch-persistent", null, -1);
                create(other, "/watch-persistent/child");
                other.delete("/watch-persistent/child", -1);
                other.delete("/watch-persistent", -1);
            }
            String[] round = {"NodeCreated", "NodeDataChanged", "NodeChildrenChanged", "NodeChildrenChanged", "NodeDeleted"};
            String[] expected = new String[2 * round.length];
            Arrays.setAll(expected, i -> round[i % round.length] + " /watch-persistent");
            Checks.eventuallyEqual(Arrays.asList(expected), () -> events.changes, "every event in order");
        }
    }

    private static void recursive() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect();
            create(zk, "/watch-recursive");
            zk.addWatch("/watch-recursive", events, AddWatchMode.PERSISTENT_RECURSIVE);
            ZooKeeper other = client.connect();
            create(other, "/watch-recursive-not");
            create(other, "/watch-recursive/a");
            create(other, "/watch-recursive/a/b");
            other.setData("/watch-recursive/a/b", null, -1);
            other.delete("/watch-recursive/a/b", -1);
            other.setData("/watch-recursive", null, -1);
            Checks.eventuallyEqual(
                    Arrays.asList("NodeCreated /watch-recursive/a", "NodeCreated /watch-recursive/a/b", "NodeDataChanged /watch-recursive/a/b", "NodeDeleted /watch-recursive/a/b", "NodeDataChanged /watch-recursive"),
                    () -> events.changes, "every event in order");
        }
    }

    private static void removeOne() throws Exception {
        try (Client client = new Client()) {
            Client.Events gone = new Client.Events();
            Client.Events kept = new Client.Events();
            ZooKeeper zk = client.connect();
            create(zk, "/watch-remove");
            zk.getData("/watch-remove", gone, null);
            zk.getChildren("/watch-remove", kept);
            zk.removeWatches("/watch-remove", gone, Watcher.WatcherType.Data, false);
            Checks.eventuallyEqual(Collections.singletonList("DataWatchRemoved /watch-remove"), () -> gone.changes, "removal");
            Checks.fails(KeeperException.NoWatcherException.class, () -> zk.removeWatches("/watch-remove", gone, Watcher.WatcherType.Data, false));
            create(zk, "/watch-remove/child");
            Checks.eventuallyEqual(Collections.singletonList("NodeChildrenChanged /watch-remove"), () -> kept.changes, "the other watch");
        }
    }

    private static void removeAll() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect();
            create(zk, "/watch-remove-all");
            zk.getData("/watch-remove-all", events, null);
            zk.getChildren("/watch-remove-all", events);
            zk.addWatch("/watch-remove-all", events, AddWatchMode.PERSISTENT_RECURSIVE);
            zk.removeAllWatches("/watch-remove-all", Watcher.WatcherType.Any, false);
            Checks.eventually("removals are told", () -> events.changes.stream().allMatch(change -> change.contains("WatchRemoved")) && events.changes.size() >= 3);
            events.changes.clear();
            ZooKeeper other = client.connect();
            other.setData("/watch-remove-all", null, -1);
            create(other, "/watch-remove-all/child");
            zk.getData("/watch-remove-all", false, null);
            Checks.equal(Collections.emptyList(), events.changes, "events after the removal");
            Checks.fails(KeeperException.NoWatcherException.class, () -> zk.removeAllWatches("/watch-remove-all", Watcher.WatcherType.Any, false));
        }
    }

    /** The newer client knows the persistent kinds too. */
    private static void removeByKind() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            for (Watcher.WatcherType kind : Watcher.WatcherType.values()) {
                String path = "/watch-kind-" + kind;
                Client.Events events = new Client.Events();
                create(zk, path);
                if (kind.name().startsWith("Persistent")) {
                    zk.addWatch(path, events, kind.name().equals("Persistent") ? AddWatchMode.PERSISTENT : AddWatchMode.PERSISTENT_RECURSIVE);
                } else {
                    zk.getData(path, events, null);
                    zk.getChildren(path, events);
                }
                zk.removeAllWatches(path, kind, false);
                Checks.eventually("the removal is told: " + kind, () -> !events.changes.isEmpty());
                Checks.fails(KeeperException.NoWatcherException.class, () -> zk.removeAllWatches(path, kind, false));
            }
        }
    }

    private static void ephemeralEnds() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect();
            ZooKeeper owner = client.connect();
            create(zk, "/watch-ephemerals");
            for (String name : new String[] {"a", "b"}) {
                owner.create("/watch-ephemerals/" + name, null, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
                zk.exists("/watch-ephemerals/" + name, events);
            }
            owner.close();
            Checks.eventuallyEqual(new TreeSet<>(Arrays.asList("NodeDeleted /watch-ephemerals/a", "NodeDeleted /watch-ephemerals/b")), () -> new TreeSet<>(events.changes), "both deletions");
            Checks.equal(Collections.emptyList(), zk.getChildren("/watch-ephemerals", false), "children left");
        }
    }
}
