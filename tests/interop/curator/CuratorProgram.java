import java.util.Arrays;

/** Every Curator recipe and feature that users rely on, against one server: HOST:PORT SUPERPASSWORD [CHECK ...]. */
final class CuratorProgram {
    public static void main(String[] arguments) throws Exception {
        Curator.use(arguments[0], arguments[1]);
        Checks checks = new Checks();
        LockChecks.addTo(checks);
        LeaderChecks.addTo(checks);
        CacheChecks.addTo(checks);
        NodeChecks.addTo(checks);
        CountChecks.addTo(checks);
        TransactionChecks.addTo(checks);
        AclChecks.addTo(checks);
        WatchChecks.addTo(checks);
        SessionChecks.addTo(checks);
        int failed = checks.run(Arrays.asList(arguments).subList(2, arguments.length));
        System.exit(failed == 0 ? 0 : 1);
    }
}
