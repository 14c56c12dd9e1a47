import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.auth.DigestAuthenticationProvider;

/** Access control lists. */
final class AclChecks {
    static void addTo(Checks checks) {
        checks.add("acl_digest", AclChecks::digest);
        checks.add("acl_auth_expansion", AclChecks::authExpansion);
        checks.add("acl_redaction", AclChecks::redaction);
        checks.add("acl_superuser", AclChecks::superuser);
        checks.add("acl_invalid", AclChecks::invalid);
        checks.add("acl_set_with_version", AclChecks::setWithVersion);
    }

    private static ACL digestAcl(int perms, String user, String password) throws Exception {
        return new ACL(perms, new Id("digest", DigestAuthenticationProvider.generateDigest(user + ":" + password)));
    }

    private static void digest() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework owner = curator.client("owner", "secret");
            CuratorFramework stranger = curator.client("owner", "wrong");
            List<ACL> acl = Arrays.asList(digestAcl(ZooDefs.Perms.ALL, "owner", "secret"), new ACL(ZooDefs.Perms.READ, ZooDefs.Ids.ANYONE_ID_UNSAFE));
            owner.create().withACL(acl).forPath("/acl-digest", "1".getBytes());
            Checks.equal("1", new String(stranger.getData().forPath("/acl-digest")), "anyone reads");
            Checks.fails(KeeperException.NoAuthException.class, () -> stranger.setData().forPath("/acl-digest", "2".getBytes()));
            Checks.fails(KeeperException.NoAuthException.class, () -> stranger.create().forPath("/acl-digest/child"));
            Checks.fails(KeeperException.NoAuthException.class, () -> stranger.setACL().withACL(ZooDefs.Ids.OPEN_ACL_UNSAFE).forPath("/acl-digest"));
            owner.setData().forPath("/acl-digest", "2".getBytes());
            owner.create().withACL(Collections.singletonList(digestAcl(ZooDefs.Perms.ALL, "owner", "secret"))).forPath("/acl-digest/closed");
            Checks.fails(KeeperException.NoAuthException.class, () -> stranger.getData().forPath("/acl-digest/closed"));
            Checks.fails(KeeperException.NoAuthException.class, () -> stranger.getChildren().forPath("/acl-digest/closed"));
            Checks.fails(KeeperException.NoAuthException.class, () -> stranger.delete().forPath("/acl-digest/closed"));
        }
    }

    private static void authExpansion() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework creator = curator.client("creator", "secret");
            creator.create().withACL(ZooDefs.Ids.CREATOR_ALL_ACL).forPath("/acl-auth");
            Checks.equal(Collections.singletonList(digestAcl(ZooDefs.Perms.ALL, "creator", "secret")), creator.getACL().forPath("/acl-auth"), "the stored ACL");
            Checks.fails(KeeperException.InvalidACLException.class, () -> curator.client().create().withACL(ZooDefs.Ids.CREATOR_ALL_ACL).forPath("/acl-nobody"));
            CuratorFramework both = curator.start(Curator.builder(Curator.servers()).authorization(Arrays.asList(
                    new org.apache.curator.framework.AuthInfo("digest", "one:1".getBytes()),
                    new org.apache.curator.framework.AuthInfo("digest", "two:2".getBytes()))).build());
            both.create().withACL(ZooDefs.Ids.CREATOR_ALL_ACL).forPath("/acl-both");
            Checks.equal(2, both.getACL().forPath("/acl-both").size(), "one entry for each identity");
        }
    }

    private static void redaction() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework owner = curator.client("owner", "secret");
            ACL full = digestAcl(ZooDefs.Perms.ALL, "owner", "secret");
            owner.create().withACL(Arrays.asList(full, new ACL(ZooDefs.Perms.READ, ZooDefs.Ids.ANYONE_ID_UNSAFE))).forPath("/acl-redacted");
            Checks.that(owner.getACL().forPath("/acl-redacted").contains(full), "an administrator of the node sees the digest");
            List<ACL> seen = curator.client().getACL().forPath("/acl-redacted");
            Checks.that(seen.contains(new ACL(ZooDefs.Perms.ALL, new Id("digest", "owner:x"))), "others do not: " + seen);
        }
    }

    private static void superuser() throws Exception {
        try (Curator curator = new Curator()) {
            curator.client("owner", "secret").create().withACL(ZooDefs.Ids.CREATOR_ALL_ACL).forPath("/acl-super", "1".getBytes());
            CuratorFramework superuser = curator.superuser();
            Checks.equal("1", new String(superuser.getData().forPath("/acl-super")), "the superuser reads");
            superuser.delete().forPath("/acl-super");
        }
    }

    private static void invalid() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            for (ACL bad : new ACL[] {new ACL(31, new Id("digest", "no-colon")), new ACL(31, new Id("nonsense", "x")), new ACL(31, new Id("ip", "not-an-address")), new ACL(31, new Id("world", "someone"))}) {
                Checks.fails(KeeperException.InvalidACLException.class, () -> client.create().withACL(Collections.singletonList(bad)).forPath("/acl-invalid"));
            }
            client.create().withACL(Collections.singletonList(new ACL(31, new Id("ip", "127.0.0.0/8")))).forPath("/acl-ip");
            client.setData().forPath("/acl-ip", "1".getBytes());
        }
    }

    private static void setWithVersion() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            client.create().forPath("/acl-version");
            client.setACL().withVersion(0).withACL(ZooDefs.Ids.OPEN_ACL_UNSAFE).forPath("/acl-version");
            Checks.fails(KeeperException.BadVersionException.class, () -> client.setACL().withVersion(0).withACL(ZooDefs.Ids.OPEN_ACL_UNSAFE).forPath("/acl-version"));
            Stat stat = new Stat();
            client.getACL().storingStatIn(stat).forPath("/acl-version");
            Checks.equal(1, stat.getAversion(), "aversion");
            Checks.equal(0, stat.getVersion(), "version");
        }
    }
}
