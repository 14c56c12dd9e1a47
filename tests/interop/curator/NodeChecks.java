import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.CuratorEvent;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/** Creating, reading and deleting nodes of every kind, and the recipes that keep one alive. */
final class NodeChecks {
    static void addTo(Checks checks) {
        checks.add("create_modes", NodeChecks::createModes);
        checks.add("protected_create", NodeChecks::protectedCreate);
        checks.add("create_or_set", NodeChecks::createOrSet);
        checks.add("background_operations", NodeChecks::background);
        checks.add("guaranteed_delete", NodeChecks::guaranteedDelete);
        checks.add("persistent_node", NodeChecks::persistentNode);
        checks.add("persistent_ttl_node", NodeChecks::persistentTtlNode);
        checks.add("containers_are_created_and_swept", NodeChecks::containers);
        checks.add("ttl_nodes_are_swept", NodeChecks::ttlNodes);
    }

    private static void createModes() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            client.create().forPath("/modes", null);
            for (CreateMode mode : new CreateMode[] {CreateMode.PERSISTENT, CreateMode.EPHEMERAL, CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.EPHEMERAL_SEQUENTIAL, CreateMode.CONTAINER}) {
                Stat stat = new Stat();
                String path = client.create().storingStatIn(stat).withMode(mode).forPath("/modes/" + mode, "x".getBytes());
                Checks.equal(mode.isSequential(), path.matches("/modes/" + mode + "\\d{10}"), "sequence suffix of " + path);
                long owner = mode.isEphemeral() ? client.getZookeeperClient().getZooKeeper().getSessionId() : 0;
                Checks.equal(owner, stat.getEphemeralOwner(), "owner of " + path);
                Checks.equal("x", new String(client.getData().forPath(path)), "data of " + path);
            }
            Checks.fails(KeeperException.NodeExistsException.class, () -> client.create().forPath("/modes"));
            Checks.fails(KeeperException.NoNodeException.class, () -> client.create().forPath("/modes/missing/child"));
            Checks.fails(KeeperException.NoChildrenForEphemeralsException.class, () -> client.create().forPath("/modes/EPHEMERAL/child"));
            Checks.fails(KeeperException.NotEmptyException.class, () -> client.delete().forPath("/modes"));
            Checks.fails(KeeperException.BadVersionException.class, () -> client.setData().withVersion(7).forPath("/modes", "y".getBytes()));
        }
    }

    private static void protectedCreate() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            String path = client.create().creatingParentContainersIfNeeded().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/protected/n-");
            Checks.that(path.matches("/protected/_c_[0-9a-f-]{36}-n-\\d{10}"), "name of " + path);
            Checks.that(client.checkExists().forPath(path) != null, "it exists");
        }
    }

    private static void createOrSet() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            client.create().orSetData().forPath("/or-set", "1".getBytes());
            client.create().orSetData().forPath("/or-set", "2".getBytes());
            Stat stat = new Stat();
            Checks.equal("2", new String(client.getData().storingStatIn(stat).forPath("/or-set")), "data");
            Checks.equal(1, stat.getVersion(), "version");
            CuratorFramework compressed = curator.client();
            compressed.setData().compressed().forPath("/or-set", "three".getBytes());
            Checks.equal("three", new String(compressed.getData().decompressed().forPath("/or-set")), "compressed data");
            CuratorFramework chrooted = client.usingNamespace("or-set");
            chrooted.create().forPath("/inner");
            Checks.that(client.checkExists().forPath("/or-set/inner") != null, "a namespace prefixes paths");
        }
    }

    private static void background() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            int count = 500;
            CountDownLatch done = new CountDownLatch(count);
            AtomicReference<CuratorEvent> last = new AtomicReference<>();
            client.create().forPath("/background");
            for (int i = 0; i < count; i++) {
                client.create().inBackground((source, event) -> {
                    last.set(event);
                    done.countDown();
                }).forPath("/background/" + i);
            }
            Checks.that(done.await(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "every callback is called");
            Checks.equal("/background/" + (count - 1), last.get().getPath(), "callbacks come in order");
            Checks.equal(count, client.getChildren().forPath("/background").size(), "children");
            CountDownLatch synced = new CountDownLatch(1);
            client.sync().inBackground((source, event) -> synced.countDown()).forPath("/background");
            Checks.that(synced.await(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "sync is answered");
        }
    }

    private static void guaranteedDelete() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            client.create().creatingParentsIfNeeded().forPath("/guaranteed/a/b/c");
            client.delete().guaranteed().deletingChildrenIfNeeded().forPath("/guaranteed");
            Checks.equal(null, client.checkExists().forPath("/guaranteed"), "the whole subtree is gone");
            client.delete().quietly().forPath("/guaranteed");
        }
    }

    private static void persistentNode() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework other = curator.client();
            PersistentNode node = new PersistentNode(curator.client(), CreateMode.EPHEMERAL, false, "/persistent/node", "1".getBytes());
            node.start();
            Checks.that(node.waitForInitialCreate(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "created");
            Stat first = other.checkExists().forPath("/persistent/node");
            Checks.that(first.getEphemeralOwner() != 0, "an ephemeral");
            other.delete().forPath("/persistent/node");
            Checks.eventually("created again", () -> {
                Stat now = other.checkExists().forPath("/persistent/node");
                return now != null && now.getCzxid() != first.getCzxid();
            });
            node.setData("2".getBytes());
            Checks.eventually("data set", () -> "2".equals(new String(other.getData().forPath("/persistent/node"))));
            node.close();
            Checks.eventually("gone after close", () -> other.checkExists().forPath("/persistent/node") == null);
        }
    }

    private static void persistentTtlNode() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework other = curator.client();
            long ttlMs = 1_500;
            PersistentTtlNode node = new PersistentTtlNode(curator.client(), "/persistent/ttl", ttlMs, "x".getBytes());
            node.start();
            Checks.that(node.waitForInitialCreate(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "created");
            Stat parent = other.checkExists().forPath("/persistent/ttl");
            Checks.equal(0L, parent.getEphemeralOwner(), "owner of the container");
            Checks.eventually("it has its TTL child", () -> other.checkExists().forPath("/persistent/ttl").getNumChildren() == 1);
            String child = "/persistent/ttl/" + other.getChildren().forPath("/persistent/ttl").get(0);
            long mtime = other.checkExists().forPath(child).getMtime();
            Checks.eventually("kept alive beyond its TTL", () -> other.checkExists().forPath(child).getMtime() > mtime + ttlMs);
            node.close();
            Checks.eventually("swept after close", () -> other.checkExists().forPath("/persistent/ttl") == null);
        }
    }

    private static void containers() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            client.create().creatingParentContainersIfNeeded().forPath("/containers/a/leaf");
            Stat stat = client.checkExists().forPath("/containers/a");
            Checks.equal(0L, stat.getEphemeralOwner(), "a container's owner reads as 0");
            client.create().withMode(CreateMode.CONTAINER).forPath("/containers/never-used");
            client.delete().forPath("/containers/a/leaf");
            Checks.eventually("the empty container is swept", () -> client.checkExists().forPath("/containers/a") == null);
            List<String> left = client.getChildren().forPath("/containers");
            Checks.equal(java.util.Collections.singletonList("never-used"), left, "one that never had a child stays");
        }
    }

    private static void ttlNodes() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            client.create().forPath("/ttl");
            client.create().withTtl(1_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/ttl/childless");
            client.create().withTtl(1_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/ttl/parent");
            client.create().forPath("/ttl/parent/child");
            String sequential = client.create().withTtl(60_000).withMode(CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL).forPath("/ttl/s-");
            Checks.that(sequential.matches("/ttl/s-\\d{10}"), "name of " + sequential);
            Checks.eventually("the childless one is swept", () -> client.checkExists().forPath("/ttl/childless") == null);
            Checks.that(client.checkExists().forPath("/ttl/parent") != null, "one with a child stays");
            Checks.that(client.checkExists().forPath(sequential) != null, "one whose time has not come stays");
            client.delete().forPath("/ttl/parent/child");
            Checks.eventually("swept once childless", () -> client.checkExists().forPath("/ttl/parent") == null);
        }
    }
}
