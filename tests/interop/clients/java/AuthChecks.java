import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.ClientInfo;
import org.apache.zookeeper.data.Id;

/** Who a connection is: digest, SASL DIGEST-MD5 and a client certificate. */
final class AuthChecks {
    private static String secureServer;
    private static String certificates;

    /** The folder holds client.pem (key and certificate), client.crt and ca.pem. */
    static void use(String secureAddress, String certificateFolder) {
        secureServer = secureAddress;
        certificates = certificateFolder;
    }

    static void addTo(Checks checks) {
        checks.add("who_am_i", AuthChecks::whoAmI);
        checks.add("unknown_scheme_fails", AuthChecks::unknownScheme);
        checks.add("sasl_digest_md5", AuthChecks::sasl);
        checks.add("sasl_superuser", AuthChecks::saslSuperuser);
        checks.add("sasl_with_a_wrong_password_fails", AuthChecks::saslWrongPassword);
        checks.add("tls_client_certificate", AuthChecks::clientCertificate);
        checks.add("tls_without_a_client_certificate_fails", AuthChecks::noClientCertificate);
        checks.add("tls_carries_large_data", AuthChecks::largeOverTls);
    }

    private static TreeSet<String> identities(ZooKeeper zk) throws Exception {
        List<ClientInfo> answer = zk.whoAmI();
        Checks.that(answer != null, "whoAmI is answered: the client hides a lost connection as null");
        return answer.stream().map(info -> info.getAuthScheme() + ":" + info.getUser()).collect(Collectors.toCollection(TreeSet::new));
    }

    private static void whoAmI() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect();
            Checks.equal(new TreeSet<>(Collections.singleton("ip:127.0.0.1")), identities(zk), "identities");
            zk.addAuthInfo("digest", "one:1".getBytes());
            zk.addAuthInfo("digest", "two:2".getBytes());
            Checks.that(identities(zk).contains("digest:one") && identities(zk).contains("digest:two"), "both digests: " + identities(zk));
        }
    }

    private static void unknownScheme() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            client.connect(events).addAuthInfo("nonsense", "x".getBytes());
            Checks.eventually("told of it", () -> events.states.contains(KeeperState.AuthFailed));
        }
    }

    private static ZKClientConfig saslAs(String section) {
        Map<String, String> properties = new HashMap<>();
        properties.put(ZKClientConfig.ENABLE_CLIENT_SASL_KEY, "true");
        properties.put(ZKClientConfig.LOGIN_CONTEXT_NAME_KEY, section);
        return Client.config(properties);
    }

    private static void sasl() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect(Client.server(), events, saslAs("Client"));
            Checks.eventually("authenticated", () -> events.states.contains(KeeperState.SaslAuthenticated));
            Checks.that(identities(zk).contains("sasl:jaasuser"), "identities: " + identities(zk));
            zk.create("/sasl", "1".getBytes(), ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
            List<ACL> stored = zk.getACL("/sasl", null);
            Checks.equal(Collections.singletonList(new ACL(ZooDefs.Perms.ALL, new Id("sasl", "jaasuser"))), stored, "the stored ACL");
            Checks.fails(KeeperException.NoAuthException.class, () -> client.connect().getData("/sasl", false, null));
        }
    }

    private static void saslSuperuser() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            ZooKeeper zk = client.connect(Client.server(), events, saslAs("Super"));
            Checks.eventually("authenticated", () -> events.states.contains(KeeperState.SaslAuthenticated));
            byte[] before = zk.getData("/zookeeper/config", false, null);
            zk.setData("/zookeeper/config", before, -1);
        }
    }

    private static void saslWrongPassword() throws Exception {
        try (Client client = new Client()) {
            Client.Events events = new Client.Events();
            client.connect(Client.server(), events, saslAs("WrongPassword"));
            Checks.eventually("refused", () -> events.states.contains(KeeperState.AuthFailed));
        }
    }

    private static ZKClientConfig tls() {
        Map<String, String> properties = new HashMap<>();
        properties.put(ZKClientConfig.SECURE_CLIENT, "true");
        properties.put(ZKClientConfig.ZOOKEEPER_CLIENT_CNXN_SOCKET, "org.apache.zookeeper.ClientCnxnSocketNetty");
        properties.put("zookeeper.ssl.keyStore.location", certificates + "/client.pem");
        properties.put("zookeeper.ssl.trustStore.location", certificates + "/ca.pem");
        return Client.config(properties);
    }

    /** The subject of the client's certificate as ZooKeeper writes it: the way Java does. */
    private static String clientSubject() throws Exception {
        try (InputStream file = Files.newInputStream(Paths.get(certificates, "client.crt"))) {
            X509Certificate certificate = (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(file);
            return certificate.getSubjectX500Principal().getName();
        }
    }

    private static void clientCertificate() throws Exception {
        String subject = clientSubject();
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect(secureServer, new Client.Events(), tls());
            Checks.that(identities(zk).contains("x509:" + subject), "identities: " + identities(zk));
            zk.create("/x509", "1".getBytes(), ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
            Checks.equal(Collections.singletonList(new ACL(ZooDefs.Perms.ALL, new Id("x509", subject))), zk.getACL("/x509", null), "the stored ACL");
            Checks.equal("1", new String(zk.getData("/x509", false, null)), "data");
            Checks.fails(KeeperException.NoAuthException.class, () -> client.connect().getData("/x509", false, null));
        }
    }

    private static void noClientCertificate() throws Exception {
        Map<String, String> properties = new HashMap<>();
        properties.put(ZKClientConfig.SECURE_CLIENT, "true");
        properties.put(ZKClientConfig.ZOOKEEPER_CLIENT_CNXN_SOCKET, "org.apache.zookeeper.ClientCnxnSocketNetty");
        properties.put("zookeeper.ssl.trustStore.location", certificates + "/ca.pem");
        Client.Events events = new Client.Events();
        ZooKeeper zk = new ZooKeeper(secureServer, Client.SESSION_TIMEOUT_MS, events, Client.config(properties));
        try {
            Checks.fails(KeeperException.ConnectionLossException.class, () -> zk.exists("/", false));
            Checks.equal(Collections.emptyList(), events.states, "connection states");
        } finally {
            zk.close();
        }
    }

    private static void largeOverTls() throws Exception {
        try (Client client = new Client()) {
            ZooKeeper zk = client.connect(secureServer, new Client.Events(), tls());
            byte[] data = new byte[1_000_000];
            zk.create("/tls-large", data, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            Checks.equal(data.length, zk.getData("/tls-large", false, null).length, "length");
        }
    }
}
