import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCacheEvent;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.cache.TreeCacheEvent;

/** Caches that follow a subtree through watches. */
final class CacheChecks {
    static void addTo(Checks checks) {
        checks.add("curator_cache", CacheChecks::curatorCache);
        checks.add("curator_cache_of_one_node", CacheChecks::curatorCacheOfOneNode);
        checks.add("tree_cache", CacheChecks::treeCache);
        checks.add("path_children_cache", CacheChecks::pathChildrenCache);
        checks.add("node_cache", CacheChecks::nodeCache);
    }

    private static void curatorCache() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            client.create().creatingParentsIfNeeded().forPath("/caches/curator/a", "1".getBytes());
            List<String> events = new CopyOnWriteArrayList<>();
            AtomicBoolean initialized = new AtomicBoolean();
            CuratorCache cache = CuratorCache.build(curator.client(), "/caches/curator");
            cache.listenable().addListener(CuratorCacheListener.builder()
                    .forInitialized(() -> initialized.set(true))
                    .forCreates(node -> events.add("created " + node.getPath()))
                    .forChanges((old, node) -> events.add("changed " + node.getPath() + " " + new String(old.getData()) + " " + new String(node.getData())))
                    .forDeletes(node -> events.add("deleted " + node.getPath()))
                    .build());
            cache.start();
            Checks.eventually("initialized with both nodes", () -> initialized.get() && cache.size() == 2);
            events.clear();
            client.create().forPath("/caches/curator/a/deep", "2".getBytes());
            client.setData().forPath("/caches/curator/a", "3".getBytes());
            client.delete().forPath("/caches/curator/a/deep");
            Checks.eventuallyEqual(3, events::size, "events");
            Checks.that(events.contains("created /caches/curator/a/deep"), "the create is seen: " + events);
            Checks.that(events.contains("changed /caches/curator/a 1 3"), "the change is seen: " + events);
            Checks.that(events.contains("deleted /caches/curator/a/deep"), "the delete is seen: " + events);
            Checks.equal("3", new String(cache.get("/caches/curator/a").get().getData()), "cached data");
            for (int i = 0; i < 100; i++) {
                client.create().forPath("/caches/curator/many-" + i, Integer.toString(i).getBytes());
            }
            Checks.eventually("a hundred more are cached", () -> cache.size() == 102);
            cache.close();
        }
    }

    private static void curatorCacheOfOneNode() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            CuratorCache cache = CuratorCache.build(curator.client(), "/caches-one", CuratorCache.Options.SINGLE_NODE_CACHE);
            cache.start();
            client.create().forPath("/caches-one", "1".getBytes());
            Checks.eventually("the node is cached", () -> cache.get("/caches-one").isPresent());
            client.create().forPath("/caches-one/child");
            client.setData().forPath("/caches-one", "2".getBytes());
            Checks.eventually("its change is cached", () -> "2".equals(new String(cache.get("/caches-one").get().getData())));
            Checks.equal(1, cache.size(), "no child is cached");
            cache.close();
        }
    }

    private static void treeCache() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            client.create().creatingParentsIfNeeded().forPath("/caches/tree/a/b", "1".getBytes());
            List<TreeCacheEvent.Type> events = new CopyOnWriteArrayList<>();
            TreeCache cache = new TreeCache(curator.client(), "/caches/tree");
            cache.getListenable().addListener((source, event) -> events.add(event.getType()));
            cache.start();
            Checks.eventually("initialized", () -> events.contains(TreeCacheEvent.Type.INITIALIZED));
            Checks.equal("1", new String(cache.getCurrentData("/caches/tree/a/b").getData()), "initial data");
            client.setData().forPath("/caches/tree/a/b", "2".getBytes());
            Checks.eventually("the change is cached", () -> "2".equals(new String(cache.getCurrentData("/caches/tree/a/b").getData())));
            client.create().creatingParentsIfNeeded().forPath("/caches/tree/c/d/e");
            Checks.eventually("the new branch is cached", () -> cache.getCurrentData("/caches/tree/c/d/e") != null);
            client.delete().deletingChildrenIfNeeded().forPath("/caches/tree/a");
            Checks.eventually("the old branch is gone", () -> cache.getCurrentData("/caches/tree/a") == null
                    && cache.getCurrentChildren("/caches/tree").keySet().equals(java.util.Collections.singleton("c")));
            cache.close();
        }
    }

    private static void pathChildrenCache() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            client.create().creatingParentsIfNeeded().forPath("/caches/children/a", "1".getBytes());
            List<String> events = new CopyOnWriteArrayList<>();
            PathChildrenCache cache = new PathChildrenCache(curator.client(), "/caches/children", true);
            cache.getListenable().addListener((source, event) -> events.add(event.getType() + (event.getData() == null ? "" : " " + event.getData().getPath())));
            cache.start(PathChildrenCache.StartMode.POST_INITIALIZED_EVENT);
            Checks.eventually("initialized", () -> events.contains(PathChildrenCacheEvent.Type.INITIALIZED.toString()));
            client.create().forPath("/caches/children/b", "2".getBytes());
            Checks.eventually("the new child is seen", () -> events.contains("CHILD_ADDED /caches/children/b"));
            client.setData().forPath("/caches/children/a", "3".getBytes());
            Checks.eventually("the change is seen", () -> events.contains("CHILD_UPDATED /caches/children/a"));
            client.delete().forPath("/caches/children/b");
            Checks.eventually("the delete is seen", () -> events.contains("CHILD_REMOVED /caches/children/b"));
            Checks.equal("3", new String(cache.getCurrentData("/caches/children/a").getData()), "cached data");
            cache.close();
        }
    }

    private static void nodeCache() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            NodeCache cache = new NodeCache(curator.client(), "/caches/node");
            cache.start(true);
            client.create().creatingParentsIfNeeded().forPath("/caches/node", "1".getBytes());
            Checks.eventually("the node is cached", () -> cache.getCurrentData() != null);
            client.setData().forPath("/caches/node", "2".getBytes());
            Checks.eventually("its change is cached", () -> "2".equals(new String(cache.getCurrentData().getData())));
            client.delete().forPath("/caches/node");
            Checks.eventually("its delete is cached", () -> cache.getCurrentData() == null);
            cache.close();
        }
    }
}
