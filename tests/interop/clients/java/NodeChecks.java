import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;

/** Nodes: each way to create, read, write, count and delete them. */
final class NodeChecks {
    private static final List<ACL> OPEN = ZooDefs.Ids.OPEN_ACL_UNSAFE;

    static void addTo(Checks checks) {
        checks.add("create_modes", NodeChecks::createModes);
        checks.add("create_failures", NodeChecks::createFailures);
        checks.add("stat_fields", NodeChecks::statFields);
        checks.add("null_and_empty_data", NodeChecks::nullAndEmptyData);
        checks.add("acl_versions", NodeChecks::aclVersions);
        checks.add("multi_commits", NodeChecks::multiCommits);
        checks.add("multi_rolls_back", NodeChecks::multiRollsBack);
        checks.add("multi_reads", NodeChecks::multiReads);
        checks.add("asynchronous_calls_answer_in_order", NodeChecks::asynchronous);
        checks.add("ephemerals_are_listed", NodeChecks::ephemerals);
        checks.add("all_children_are_counted", NodeChecks::allChildrenNumber);
        checks.add("sync_answers", NodeChecks::sync);
        checks.add("chroot", NodeChecks::chroot);
        checks.add("config_is_read", NodeChecks::config);
        checks.add("reconfig_is_refused", NodeChecks::reconfig);
        checks.add("large_data_and_many_children", NodeChecks::large);
    }

    private static void createModes() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            zk.create("/modes", null, OPEN, CreateMode.PERSISTENT);
            for (CreateMode mode : CreateMode.values()) {
                Stat stat = new Stat();
                String path = "/modes/" + mode;
                String created = zk.create(path, "x".getBytes(), OPEN, mode, stat, mode.isTTL() ? 60_000 : -1);
                Checks.that(created.matches(path + (mode.isSequential() ? "\\d{10}" : "")), "name of " + created);
                Checks.equal(mode.isEphemeral() ? zk.getSessionId() : 0, stat.getEphemeralOwner(), "owner of " + created);
                Checks.equal(stat, zk.exists(created, false), "Stat of " + created);
                Checks.equal("x", new String(zk.getData(created, false, null)), "data of " + created);
                if (!mode.isTTL()) {
                    zk.create(path + "-without-stat", null, OPEN, mode);
                }
            }
        }
    }

    private static void createFailures() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            zk.create("/failures", null, OPEN, CreateMode.EPHEMERAL);
            Checks.fails(KeeperException.NodeExistsException.class, () -> zk.create("/failures", null, OPEN, CreateMode.PERSISTENT));
            Checks.fails(KeeperException.NoNodeException.class, () -> zk.create("/failures-missing/child", null, OPEN, CreateMode.PERSISTENT));
            Checks.fails(KeeperException.NoChildrenForEphemeralsException.class, () -> zk.create("/failures/child", null, OPEN, CreateMode.PERSISTENT));
            Checks.fails(KeeperException.InvalidACLException.class, () -> zk.create("/failures-acl", null, Collections.emptyList(), CreateMode.PERSISTENT));
            Checks.fails(KeeperException.NoAuthException.class, () -> zk.create("/zookeeper/config/child", null, OPEN, CreateMode.PERSISTENT));
            Checks.fails(KeeperException.BadArgumentsException.class, () -> zk.delete("/zookeeper/quota", -1));
        }
    }

    private static void statFields() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            Stat created = new Stat();
            zk.create("/stat", "12".getBytes(), OPEN, CreateMode.PERSISTENT, created);
            zk.create("/stat/child", null, OPEN, CreateMode.PERSISTENT);
            Stat set = zk.setData("/stat", "123".getBytes(), 0);
            zk.delete("/stat/child", 0);
            Stat stat = new Stat();
            zk.getData("/stat", false, stat);
            Checks.equal(created.getCzxid(), stat.getCzxid(), "czxid");
            Checks.equal(set.getMzxid(), stat.getMzxid(), "mzxid");
            Checks.that(stat.getMzxid() > stat.getCzxid() && stat.getPzxid() > stat.getMzxid(), "czxid < mzxid < pzxid: " + stat);
            Checks.that(Math.abs(stat.getMtime() - System.currentTimeMillis()) < 60_000, "mtime is in ms: " + stat.getMtime());
            Checks.equal("1 2 0 3 0", stat.getVersion() + " " + stat.getCversion() + " " + stat.getAversion() + " " + stat.getDataLength() + " " + stat.getNumChildren(), "version cversion aversion dataLength numChildren");
            Checks.fails(KeeperException.BadVersionException.class, () -> zk.setData("/stat", null, 0));
            Checks.fails(KeeperException.BadVersionException.class, () -> zk.delete("/stat", 0));
        }
    }

    private static void nullAndEmptyData() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            zk.create("/null", null, OPEN, CreateMode.PERSISTENT);
            zk.create("/empty", new byte[0], OPEN, CreateMode.PERSISTENT);
            Checks.equal(null, zk.getData("/null", false, null), "null data");
            Checks.equal(0, zk.getData("/empty", false, null).length, "length of empty data");
        }
    }

    private static void aclVersions() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            zk.addAuthInfo("digest", "owner:secret".getBytes());
            zk.create("/acl", null, OPEN, CreateMode.PERSISTENT);
            Checks.equal(1, zk.setACL("/acl", ZooDefs.Ids.CREATOR_ALL_ACL, 0).getAversion(), "aversion");
            Stat stat = new Stat();
            Checks.equal("owner:Vj++wdU3sMAbt+g9TyKj1BT+usI=", zk.getACL("/acl", stat).get(0).getId().getId(), "id");
            Checks.fails(KeeperException.BadVersionException.class, () -> zk.setACL("/acl", OPEN, 0));
            Checks.fails(KeeperException.NoAuthException.class, () -> client.connect().getData("/acl", false, null));
        }
    }

    private static void multiCommits() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            List<OpResult> results = zk.multi(Arrays.asList(
                    Op.create("/multi", "1".getBytes(), OPEN, CreateMode.PERSISTENT),
                    Op.create("/multi/s-", null, OPEN, CreateMode.EPHEMERAL_SEQUENTIAL),
                    Op.create("/multi/c", null, OPEN, CreateMode.CONTAINER),
                    Op.create("/multi/t", null, OPEN, CreateMode.PERSISTENT_WITH_TTL, 60_000),
                    Op.check("/multi", 0),
                    Op.setData("/multi", "2".getBytes(), 0),
                    Op.delete("/multi/s-0000000000", -1)));
            Checks.equal("/multi/s-0000000000", ((OpResult.CreateResult) results.get(1)).getPath(), "created path");
            Checks.equal("/multi/c", ((OpResult.CreateResult) results.get(2)).getPath(), "created container");
            Checks.equal("/multi/t", ((OpResult.CreateResult) results.get(3)).getPath(), "created TTL node");
            Checks.that(results.get(4) instanceof OpResult.CheckResult && results.get(6) instanceof OpResult.DeleteResult, "kinds of result: " + results);
            Checks.equal(1, ((OpResult.SetDataResult) results.get(5)).getStat().getVersion(), "version");
            Checks.equal(new TreeSet<>(Arrays.asList("c", "t")), new TreeSet<>(zk.getChildren("/multi", false)), "children");
            Checks.equal(Collections.emptyList(), zk.multi(Collections.emptyList()), "an empty multi");
            zk.transaction().delete("/multi/c", -1).delete("/multi/t", -1).delete("/multi", 1).commit();
            Checks.equal(null, zk.exists("/multi", false), "deleted in a transaction");
        }
    }

    private static void multiRollsBack() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            KeeperException.NoNodeException failure = Checks.fails(KeeperException.NoNodeException.class, () -> zk.multi(Arrays.asList(
                    Op.create("/rolled-back", null, OPEN, CreateMode.PERSISTENT),
                    Op.delete("/missing", -1),
                    Op.create("/never", null, OPEN, CreateMode.PERSISTENT))));
            int[] codes = failure.getResults().stream().mapToInt(result -> ((OpResult.ErrorResult) result).getErr()).toArray();
            Checks.equal("[0, -101, -2]", Arrays.toString(codes), "codes");
            Checks.equal(null, zk.exists("/rolled-back", false), "a node of the failed multi");
        }
    }

    private static void multiReads() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            zk.create("/reads", "1".getBytes(), OPEN, CreateMode.PERSISTENT);
            zk.create("/reads/child", null, OPEN, CreateMode.PERSISTENT);
            List<OpResult> results = zk.multi(Arrays.asList(Op.getData("/reads"), Op.getData("/missing"), Op.getChildren("/reads")));
            Checks.equal("1", new String(((OpResult.GetDataResult) results.get(0)).getData()), "data");
            Checks.equal(KeeperException.Code.NONODE.intValue(), ((OpResult.ErrorResult) results.get(1)).getErr(), "code");
            Checks.equal(Collections.singletonList("child"), ((OpResult.GetChildrenResult) results.get(2)).getChildren(), "children");
        }
    }

    private static void asynchronous() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            int count = 500;
            List<Object> answered = new CopyOnWriteArrayList<>();
            zk.create("/async", null, OPEN, CreateMode.PERSISTENT);
            for (int i = 0; i < count; i++) {
                int mine = i;
                zk.create("/async/" + i, null, OPEN, CreateMode.PERSISTENT, (code, path, context, name, stat) -> answered.add(code == 0 ? context : code), 3 * i);
                zk.getData("/async/" + i, false, (code, path, context, data, stat) -> answered.add(code == 0 ? context : code), 3 * mine + 1);
                zk.setData("/async", null, -1, (code, path, context, stat) -> answered.add(stat.getVersion() == mine + 1 ? context : stat), 3 * i + 2);
            }
            Checks.eventuallyEqual(3 * count, answered::size, "answers");
            for (int i = 0; i < 3 * count; i++) {
                Checks.equal(i, answered.get(i), "the answer at place " + i);
            }
        }
    }

    private static void ephemerals() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            zk.create("/ephemerals", null, OPEN, CreateMode.PERSISTENT);
            zk.create("/ephemerals/mine", null, OPEN, CreateMode.EPHEMERAL);
            zk.create("/ephemerals-too", null, OPEN, CreateMode.EPHEMERAL);
            client.connect().create("/ephemerals/others", null, OPEN, CreateMode.EPHEMERAL);
            Checks.equal(new TreeSet<>(Arrays.asList("/ephemerals/mine", "/ephemerals-too")), new TreeSet<>(zk.getEphemerals()), "all of mine");
            Checks.equal(Collections.singletonList("/ephemerals/mine"), zk.getEphemerals("/ephemerals/m"), "mine below a prefix");
        }
    }

    private static void allChildrenNumber() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            for (String path : new String[] {"/all", "/all/a", "/all/a/b", "/all/a/b/c", "/all-other"}) {
                zk.create(path, null, OPEN, CreateMode.PERSISTENT);
            }
            Checks.equal(3, zk.getAllChildrenNumber("/all"), "descendants");
            Checks.equal(0, zk.getAllChildrenNumber("/all/a/b/c"), "descendants of a leaf");
        }
    }

    private static void sync() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            List<Integer> codes = new CopyOnWriteArrayList<>();
            zk.sync("/", (code, path, context) -> codes.add(code), null);
            Checks.eventuallyEqual(Collections.singletonList(0), () -> codes, "the answer to sync");
        }
    }

    private static void chroot() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper plain = client.connect();
            plain.create("/root", null, OPEN, CreateMode.PERSISTENT);
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect(Client.server() + "/root", events, new org.apache.zookeeper.client.ZKClientConfig());
            zk.exists("/inner", true);
            Checks.equal("/inner", zk.create("/inner", null, OPEN, CreateMode.PERSISTENT), "path inside");
            Checks.that(plain.exists("/root/inner", false) != null, "path outside");
            Checks.eventuallyEqual(Collections.singletonList("NodeCreated /inner"), () -> events.changes, "path of the event");
        }
    }

    private static void config() throws Exception {
        try (Client client = new Client()) {
            Stat stat = new Stat();
            Checks.that(client.connect().getConfig(false, stat) != null, "the configuration is there");
        }
    }

    private static void reconfig() throws Exception {
        Client.Events events = new Client.Events();
        try (Client client = new Client(); ZooKeeperAdmin admin = new ZooKeeperAdmin(Client.server(), Client.SESSION_TIMEOUT_MS, events)) {
            client.connected(admin, events);
            Checks.fails(KeeperException.ReconfigDisabledException.class, () -> admin.reconfigure((String) null, "2", null, -1, null));
        }
    }

    private static void large() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            byte[] data = new byte[1_000_000];
            Arrays.fill(data, (byte) 'x');
            zk.create("/large", data, OPEN, CreateMode.PERSISTENT);
            Checks.that(Arrays.equals(data, zk.getData("/large", false, null)), "a million bytes come back");
            int count = 5_000;
            List<Integer> codes = new CopyOnWriteArrayList<>();
            for (int i = 0; i < count; i++) {
                zk.create("/large/child-" + i, null, OPEN, CreateMode.PERSISTENT, (code, path, context, name) -> codes.add(code), null);
            }
            Checks.eventuallyEqual(count, codes::size, "answers");
            Checks.equal(count, zk.getChildren("/large", false).size(), "children");
        }
    }
}
