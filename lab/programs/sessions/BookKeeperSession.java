import java.nio.charset.StandardCharsets;
import java.util.Enumeration;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/** BookKeeper: an entry for each number, in a ledger of each session, on the one bookie that there is. What a session is, protocol.py says. */
final class BookKeeperSession implements NumberSession {
    private static final byte[] PASSWORD = "lab".getBytes(StandardCharsets.US_ASCII);
    private static final String PAYLOAD = " " + "x".repeat(100);
    private static final long READY_LIMIT_MS = 60_000;

    private final BookKeeper client;
    private final LedgerHandle ledger;

    private BookKeeperSession(String metadata) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(metadata);
        client = retried(() -> new BookKeeper(configuration));
        ledger = retried(this::created);
    }

    /** What the attempt gives, as soon as it does: ZooKeeper, its cluster and the bookie may be starting. */
    private static <T> T retried(java.util.concurrent.Callable<T> attempt) throws Exception {
        long until = System.currentTimeMillis() + READY_LIMIT_MS;
        while (true) {
            try {
                return attempt.call();
            } catch (Exception error) {
                if (System.currentTimeMillis() > until) {
                    throw error;
                }
                Thread.sleep(200);
            }
        }
    }

    /** A ledger with an entry that is no number: ZooKeeper may still name the bookie that was killed. */
    private LedgerHandle created() throws Exception {
        LedgerHandle made = client.createLedger(1, 1, 1, BookKeeper.DigestType.CRC32C, PASSWORD);
        made.addEntry(new byte[1]);
        return made;
    }

    @Override
    public void write(long number) throws Exception {
        ledger.addEntry((number + PAYLOAD).getBytes(StandardCharsets.US_ASCII));
    }

    @Override
    public void read() throws Exception {
        try (BookKeeperAdmin admin = new BookKeeperAdmin(client, new ClientConfiguration())) {
            for (long id : admin.listLedgers()) {
                if (id != ledger.getId()) {
                    readLedger(id);
                }
            }
        }
        System.out.println("end");
    }

    private void readLedger(long id) throws Exception {
        try (LedgerHandle old = client.openLedger(id, BookKeeper.DigestType.CRC32C, PASSWORD)) {
            if (old.getLastAddConfirmed() < 1) {
                return;
            }
            Enumeration<LedgerEntry> entries = old.readEntries(1, old.getLastAddConfirmed());
            while (entries.hasMoreElements()) {
                System.out.println(new String(entries.nextElement().getEntry(), StandardCharsets.US_ASCII).split(" ")[0]);
            }
        }
    }

    public static void main(String[] arguments) {
        try {
            NumberSession.serve(new BookKeeperSession(arguments[0]));
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
        // Its threads would go on.
        System.exit(0);
    }
}
