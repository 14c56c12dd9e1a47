import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.zookeeper.CreateMode;

/**
 * What a client holds survives a restart of the server that it is connected to, or the loss of that one in a cell:
 * HOST:PORT[,HOST:PORT ...]. Prints `ready` and the port of that server when it is time to, and `ok` at the end.
 */
final class RestartProgram {
    public static void main(String[] arguments) throws Exception {
        Curator.use(arguments[0], null, false);
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            List<ConnectionState> states = new CopyOnWriteArrayList<>();
            client.getConnectionStateListenable().addListener((source, state) -> states.add(state));
            long session = client.getZookeeperClient().getZooKeeper().getSessionId();
            InterProcessMutex mutex = new InterProcessMutex(client, "/restart/mutex");
            mutex.acquire();
            client.create().withMode(CreateMode.EPHEMERAL).forPath("/restart/mine", "1".getBytes());
            CuratorCache cache = CuratorCache.build(client, "/restart");
            cache.start();
            Checks.eventually("cached", () -> cache.get("/restart/mine").isPresent());
            System.out.println("ready " + client.getZookeeperClient().getZooKeeper().toString().replaceAll("(?s).*remoteserver:\\S*:(\\d+).*", "$1"));
            Checks.eventually("suspended", () -> states.contains(ConnectionState.SUSPENDED));
            Checks.eventually("reconnected", () -> states.contains(ConnectionState.RECONNECTED));
            Checks.equal(session, client.getZookeeperClient().getZooKeeper().getSessionId(), "session id");
            Checks.equal(session, client.checkExists().forPath("/restart/mine").getEphemeralOwner(), "owner of the ephemeral");
            Checks.that(!states.contains(ConnectionState.LOST), "the session was never lost");
            InterProcessMutex other = new InterProcessMutex(curator.client(), "/restart/mutex");
            Checks.that(!other.acquire(300, TimeUnit.MILLISECONDS), "the mutex is still held");
            mutex.release();
            Checks.that(other.acquire(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "and can be passed on");
            client.setData().forPath("/restart/mine", "2".getBytes());
            Checks.eventually("the cache goes on", () -> "2".equals(new String(cache.get("/restart/mine").get().getData())));
            cache.close();
        }
        System.out.println("ok");
    }
}
