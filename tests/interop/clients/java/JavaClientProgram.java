import java.util.Arrays;
import org.apache.zookeeper.client.ZKClientConfig;

/** ZooKeeper's own Java client against one server: HOST:PORT SECUREHOST:PORT CERTIFICATES JAASFILE [CHECK ...]. */
final class JavaClientProgram {
    public static void main(String[] arguments) throws Exception {
        Client.use(arguments[0]);
        AuthChecks.use(arguments[1], arguments[2]);
        System.setProperty("java.security.auth.login.config", arguments[3]);
        // SASL is for the checks that ask for it, and DIGEST-MD5 is not among the mechanisms of FIPS.
        System.setProperty(ZKClientConfig.ENABLE_CLIENT_SASL_KEY, "false");
        System.setProperty("zookeeper.fips-mode", "false");
        Checks checks = new Checks();
        NodeChecks.addTo(checks);
        WatchChecks.addTo(checks);
        SessionChecks.addTo(checks);
        AuthChecks.addTo(checks);
        int failed = checks.run(Arrays.asList(arguments).subList(4, arguments.length));
        System.exit(failed == 0 ? 0 : 1);
    }
}
