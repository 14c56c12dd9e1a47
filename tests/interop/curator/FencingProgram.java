import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;

/**
 * A mutex of Curator's on a path that it shares with locks of other kinds: HOST:PORT PATH. For each line `acquire` it
 * prints `token N` or `busy`, for each `release` the word `released`.
 */
final class FencingProgram {
    private static final long SHORT_WAIT_MS = 300;

    public static void main(String[] arguments) throws Exception {
        Curator.use(arguments[0], null, false);
        try (Curator curator = new Curator()) {
            FencedMutex mutex = new FencedMutex(curator.client(), arguments[1]);
            System.out.println("ready");
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            for (String order = orders.readLine(); order != null; order = orders.readLine()) {
                if (order.equals("release")) {
                    mutex.release();
                    System.out.println("released");
                } else if (mutex.acquire(SHORT_WAIT_MS, TimeUnit.MILLISECONDS)) {
                    System.out.println("token " + mutex.token());
                } else {
                    System.out.println("busy");
                }
            }
        }
    }
}
