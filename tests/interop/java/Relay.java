import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A TCP relay on a loopback port of its own in front of a server, so that a check can cut a client off and let it back in. */
final class Relay implements Closeable {
    private final String host;
    private final int port;
    private final ServerSocket listener;
    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    private volatile boolean connected = true;

    Relay(String server) throws IOException {
        host = server.substring(0, server.lastIndexOf(':'));
        port = Integer.parseInt(server.substring(server.lastIndexOf(':') + 1));
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
            Socket server = new Socket(host, port);
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
