import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/** An InterProcessMutex that tells its holder's fencing token, as docs/fencing.md shows it. */
class FencedMutex extends InterProcessMutex {
    private final CuratorFramework client;
    FencedMutex(CuratorFramework client, String path) { super(client, path); this.client = client; }
    long token() throws Exception { return client.checkExists().forPath(getLockPath()).getCzxid(); }
}
