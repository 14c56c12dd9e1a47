import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Named checks, run one after another: prints `ok NAME` or `FAIL NAME: why` for each, and fails when one of them did.
 * Where a failure may be due to what is done to the servers meanwhile, each has several tries: `again NAME: why` is
 * printed before another one.
 */
final class Checks {
    /** How long one check may take before it counts as failed. */
    private static final long CHECK_TIMEOUT_MS = 60_000;

    /** How long {@link #eventually} waits for its condition. */
    private static final long EVENTUALLY_TIMEOUT_MS = 20_000;

    interface Check {
        void run() throws Exception;
    }

    private final Map<String, Check> checks = new LinkedHashMap<>();
    private int tries = 1;
    private Check cleanUp = () -> {};

    void add(String name, Check check) {
        if (checks.put(name, check) != null) {
            throw new IllegalArgumentException("two checks are named " + name);
        }
    }

    /** Gives each check so many tries, and cleans up before each but the first. */
    void tries(int count, Check cleanUpBefore) {
        tries = count;
        cleanUp = cleanUpBefore;
    }

    /** Runs the checks named, or all of them when none is named; answers how many failed. */
    int run(List<String> names) throws InterruptedException {
        List<String> wanted = names.isEmpty() ? new ArrayList<>(checks.keySet()) : names;
        ExecutorService worker = Executors.newCachedThreadPool(Checks::daemon);
        int failed = 0;
        for (String name : wanted) {
            Check check = checks.get(name);
            String why = check == null ? "no such check" : outcome(worker, check);
            for (int left = tries; why != null && check != null && --left > 0;) {
                System.out.println("again " + name + ": " + why);
                why = outcome(worker, () -> {
                    cleanUp.run();
                    check.run();
                });
            }
            System.out.println(why == null ? "ok " + name : "FAIL " + name + ": " + why);
            failed += why == null ? 0 : 1;
        }
        return failed;
    }

    private static String outcome(ExecutorService worker, Check check) throws InterruptedException {
        Future<?> running = worker.submit(() -> {
            check.run();
            return null;
        });
        try {
            running.get(CHECK_TIMEOUT_MS, TimeUnit.MILLISECONDS);
            return null;
        } catch (TimeoutException late) {
            running.cancel(true);
            return "not finished after " + CHECK_TIMEOUT_MS + " ms";
        } catch (java.util.concurrent.ExecutionException failure) {
            failure.getCause().printStackTrace();
            return failure.getCause().toString().replace('\n', ' ');
        }
    }

    private static Thread daemon(Runnable task) {
        Thread thread = new Thread(task, "check");
        thread.setDaemon(true);
        return thread;
    }

    static void that(boolean condition, String claim) {
        if (!condition) {
            throw new AssertionError("not so: " + claim);
        }
    }

    static void equal(Object expected, Object actual, String what) {
        if (!java.util.Objects.equals(expected, actual)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + actual);
        }
    }

    /** Waits until the condition holds. Polls, since most recipes offer no way to be told. */
    static void eventually(String claim, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(EVENTUALLY_TIMEOUT_MS);
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + EVENTUALLY_TIMEOUT_MS + " ms: " + claim);
            }
            Thread.sleep(10);
        }
    }

    /** Waits until the actual value equals the expected one, and shows the last one seen when it never does. */
    static void eventuallyEqual(Object expected, Callable<?> actual, String what) throws Exception {
        Object[] last = new Object[1];
        try {
            eventually(what, () -> expected.equals(last[0] = actual.call()));
        } catch (AssertionError late) {
            equal(expected, last[0], late.getMessage());
        }
    }

    /** Runs the action, which has to fail with exactly this kind of exception. */
    static <E extends Exception> E fails(Class<E> kind, Check action) throws Exception {
        try {
            action.run();
        } catch (Exception failure) {
            if (kind.isInstance(failure)) {
                return kind.cast(failure);
            }
            throw failure;
        }
        throw new AssertionError("expected " + kind.getSimpleName() + ", but it succeeded");
    }
}
