import java.util.Arrays;

/**
 * Every Curator recipe and feature that users rely on: HOST:PORT[,HOST:PORT ...] SUPERPASSWORD [CHECK ...].
 *
 * <p>With the system property `tries`, servers may be killed meanwhile: operations are tried for longer, and each check
 * so many times.
 */
final class CuratorProgram {
    public static void main(String[] arguments) throws Exception {
        int tries = Integer.getInteger("tries", 1);
        Curator.use(arguments[0], arguments[1], tries > 1);
        Checks checks = new Checks();
        checks.tries(tries, Curator::wipe);
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
