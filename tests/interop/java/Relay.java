import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A TCP relay on a loopback port of its own in front of a cell, so that a check can cut a client off and let it back in.
 * Each connection goes to the next one of the servers that accepts it.
 */
final class Relay implements Closeable {
    private final List<String> servers;
    private final AtomicInteger next = new AtomicInteger();
    private final ServerSocket listener;
    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    private volatile boolean connected = true;

    /** The servers are HOST:PORT[,HOST:PORT ...]. */
    Relay(String connectString) throws IOException {
        servers = Arrays.asList(connectString.split(","));
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        start(this::accept);
    }

    /** The host:port to give to the client. */
    String address() {
        return "127.0.0.1:" + listener.getLocalPort();
    }

    /** Cuts every connection, and each new one at once, until {@link #restore}. */
    void cut() {
        connected = false;
        sockets.forEach(Relay::quietly);
        sockets.clear();
    }

    void restore() {
        connected = true;
    }

    @Override
    public void close() {
        cut();
        quietly(listener);
    }

    private void accept() {
        try {
            while (true) {
                Socket client = listener.accept();
                if (connected) {
                    join(client);
                } else {
                    quietly(client);
                }
            }
        } catch (IOException closed) {
            return;
        }
    }

    private void join(Socket client) {
        try {
            Socket server = connect();
            client.setTcpNoDelay(true);
            server.setTcpNoDelay(true);
            sockets.add(client);
            sockets.add(server);
            start(() -> copy(client, server));
            start(() -> copy(server, client));
            if (!connected) {
                cut();
            }
        } catch (IOException refused) {
            quietly(client);
        }
    }

    private Socket connect() throws IOException {
        IOException refused = null;
        for (int tried = 0; tried < servers.size(); tried++) {
            String server = servers.get(Math.floorMod(next.getAndIncrement(), servers.size()));
            int colon = server.lastIndexOf(':');
            try {
                return new Socket(server.substring(0, colon), Integer.parseInt(server.substring(colon + 1)));
            } catch (IOException why) {
                refused = why;
            }
        }
        throw refused;
    }

    private void copy(Socket from, Socket to) {
        byte[] buffer = new byte[65536];
        try (InputStream in = from.getInputStream(); OutputStream out = to.getOutputStream()) {
            for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
                out.write(buffer, 0, count);
            }
        } catch (IOException cutOff) {
            // The other direction ends with it, below.
        } finally {
            quietly(from);
            quietly(to);
            sockets.remove(from);
            sockets.remove(to);
        }
    }

    private static void start(Runnable task) {
        Thread thread = new Thread(task, "relay");
        thread.setDaemon(true);
        thread.start();
    }

    private static void quietly(Closeable closeable) {
        try {
            closeable.close();
        } catch (IOException alreadyGone) {
            return;
        }
    }
}
