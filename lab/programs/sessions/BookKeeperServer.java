import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.server.Main;

/** A bookie, as its start script starts it, in a cluster that is made when it is not there yet. */
final class BookKeeperServer {
    private static final long READY_LIMIT_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        ServerConfiguration configuration = new ServerConfiguration();
        configuration.loadConf(new java.io.File(arguments[0]).toURI().toURL());
        long until = System.currentTimeMillis() + READY_LIMIT_MS;
        // False, if there is one.
        while (true) {
            try {
                BookKeeperAdmin.initNewCluster(configuration);
                break;
            } catch (Exception error) {
                // ZooKeeper is starting.
                if (System.currentTimeMillis() > until) {
                    throw error;
                }
                Thread.sleep(200);
            }
        }
        Main.main(new String[] {"--conf", arguments[0]});
    }
}
