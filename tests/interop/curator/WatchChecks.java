import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.WatcherRemoveCuratorFramework;
import org.apache.curator.framework.api.CuratorWatcher;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;

/** Watches, one-shot and persistent, and the configuration that the ensemble publishes. */
final class WatchChecks {
    static void addTo(Checks checks) {
        checks.add("one_shot_watches", WatchChecks::oneShot);
        checks.add("persistent_watcher", () -> persistentWatcher(false, Arrays.asList(
                "NodeCreated /watched-once", "NodeDataChanged /watched-once", "NodeChildrenChanged /watched-once", "NodeChildrenChanged /watched-once", "NodeDeleted /watched-once"), "/watched-once"));
        checks.add("persistent_recursive_watcher", () -> persistentWatcher(true, Arrays.asList(
                "NodeCreated /watched-tree", "NodeDataChanged /watched-tree", "NodeCreated /watched-tree/child", "NodeDeleted /watched-tree/child", "NodeDeleted /watched-tree"), "/watched-tree"));
        checks.add("watches_are_added_and_removed", WatchChecks::addedAndRemoved);
        checks.add("watcher_remove_framework", WatchChecks::watcherRemoveFramework);
        checks.add("config_watcher", WatchChecks::configWatcher);
        checks.add("ensemble_tracker", WatchChecks::ensembleTracker);
    }

    private static CuratorWatcher into(List<String> events) {
        return event -> {
            if (event.getType() != Watcher.Event.EventType.None) {
                events.add(event.getType() + " " + event.getPath());
            }
        };
    }

    private static void oneShot() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            CuratorFramework other = curator.client();
            List<String> events = new CopyOnWriteArrayList<>();
            client.checkExists().usingWatcher(into(events)).forPath("/one-shot");
            other.create().forPath("/one-shot");
            Checks.eventuallyEqual(Arrays.asList("NodeCreated /one-shot"), () -> events, "events of the exists watch");
            client.getData().usingWatcher(into(events)).forPath("/one-shot");
            client.getChildren().usingWatcher(into(events)).forPath("/one-shot");
            other.setData().forPath("/one-shot", "1".getBytes());
            other.setData().forPath("/one-shot", "2".getBytes());
            other.create().forPath("/one-shot/child");
            Checks.eventuallyEqual(Arrays.asList("NodeCreated /one-shot", "NodeDataChanged /one-shot", "NodeChildrenChanged /one-shot"), () -> events, "one event for each watch");
        }
    }

    private static void persistentWatcher(boolean recursive, List<String> expected, String path) throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework other = curator.client();
            List<String> events = new CopyOnWriteArrayList<>();
            List<String> ready = new CopyOnWriteArrayList<>();
            PersistentWatcher watcher = new PersistentWatcher(curator.client(), path, recursive);
            watcher.getListenable().addListener(event -> events.add(event.getType() + " " + event.getPath()));
            watcher.getResetListenable().addListener(() -> ready.add("set"));
            watcher.start();
            Checks.eventually("the watch is set", () -> !ready.isEmpty());
            other.create().forPath(path);
            other.setData().forPath(path, "1".getBytes());
            other.create().forPath(path + "/child");
            other.delete().forPath(path + "/child");
            other.delete().forPath(path);
            Checks.eventuallyEqual(expected, () -> events, "every event in order");
            watcher.close();
        }
    }

    private static void addedAndRemoved() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            CuratorFramework other = curator.client();
            List<String> first = new CopyOnWriteArrayList<>();
            List<String> second = new CopyOnWriteArrayList<>();
            CuratorWatcher one = into(first);
            CuratorWatcher two = into(second);
            other.create().forPath("/removable");
            client.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE).usingWatcher(one).forPath("/removable");
            client.watchers().add().withMode(AddWatchMode.PERSISTENT).usingWatcher(two).forPath("/removable");
            other.create().forPath("/removable/a");
            Checks.eventually("both are told", () -> first.contains("NodeCreated /removable/a") && second.contains("NodeChildrenChanged /removable"));
            client.watchers().remove(one).forPath("/removable");
            client.watchers().remove(two).forPath("/removable");
            first.clear();
            second.clear();
            other.setData().forPath("/removable", "1".getBytes());
            client.sync().forPath("/removable");
            client.getData().forPath("/removable");
            Checks.that(!first.contains("NodeDataChanged /removable") && !second.contains("NodeDataChanged /removable"), "neither is told after its removal");
            Checks.fails(KeeperException.NoWatcherException.class, () -> client.watchers().removeAll().forPath("/removable"));
        }
    }

    private static void watcherRemoveFramework() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            WatcherRemoveCuratorFramework removing = client.newWatcherRemoveCuratorFramework();
            List<String> events = new CopyOnWriteArrayList<>();
            client.create().forPath("/removed-together");
            removing.getData().usingWatcher(into(events)).forPath("/removed-together");
            removing.getChildren().usingWatcher(into(events)).forPath("/removed-together");
            removing.checkExists().usingWatcher(into(events)).forPath("/removed-together/missing");
            removing.removeWatchers();
            Checks.eventuallyEqual(3, events::size, "removals that the client tells of");
            events.clear();
            client.setData().forPath("/removed-together", "1".getBytes());
            client.create().forPath("/removed-together/missing");
            client.getData().forPath("/removed-together");
            Checks.equal(0, events.size(), "events after removal");
        }
    }

    /** What an ensemble of our servers publishes. */
    private static String ensemble() {
        StringBuilder text = new StringBuilder();
        int number = 0;
        for (String server : Curator.servers().split(",")) {
            number++;
            text.append("server." + number + "=127.0.0.1:" + (2887 + number) + ":" + (3887 + number) + ":participant;" + server + "\n");
        }
        return text + "version=0";
    }

    private static void configWatcher() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            CuratorFramework superuser = curator.superuser();
            List<String> events = new CopyOnWriteArrayList<>();
            byte[] before = client.getConfig().usingWatcher(into(events)).forEnsemble();
            Checks.fails(KeeperException.NoAuthException.class, () -> client.setData().forPath("/zookeeper/config", ensemble().getBytes()));
            superuser.setData().forPath("/zookeeper/config", ensemble().getBytes());
            Checks.eventuallyEqual(Arrays.asList("NodeDataChanged /zookeeper/config"), () -> events, "events");
            Checks.equal(ensemble(), new String(client.getConfig().forEnsemble()), "the new text");
            superuser.setData().forPath("/zookeeper/config", before);
        }
    }

    private static List<String> sorted(String connectString) {
        String[] servers = connectString.split(",");
        Arrays.sort(servers);
        return Arrays.asList(servers);
    }

    private static void ensembleTracker() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework superuser = curator.superuser();
            CuratorFramework client = curator.start(Curator.builder(Curator.servers().replace("127.0.0.1", "localhost")).ensembleTracker(true).build());
            byte[] before = client.getConfig().forEnsemble();
            superuser.setData().forPath("/zookeeper/config", ensemble().getBytes());
            List<String> servers = sorted(Curator.servers());
            Checks.eventuallyEqual(servers, () -> sorted(client.getZookeeperClient().getCurrentConnectionString()), "the connection string follows");
            Checks.equal(servers.size(), client.getCurrentConfig().getAllMembers().size(), "members");
            superuser.setData().forPath("/zookeeper/config", before);
        }
    }
}
