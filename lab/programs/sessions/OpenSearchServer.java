import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** A node of OpenSearch with HTTP, in its directory (home) and on its ports, without the start script's checks of jars and modules. */
final class OpenSearchServer extends Node {
    private OpenSearchServer(Settings settings) {
        super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "lab"), List.of(Netty4Plugin.class), false);
    }

    public static void main(String[] arguments) throws Exception {
        Settings settings = Settings.builder()
            .put("path.home", arguments[0])
            .put("path.data", arguments[1])
            .put("http.port", arguments[2])
            .put("transport.port", arguments[3])
            .put("network.host", "127.0.0.1")
            .put("discovery.type", "single-node")
            .put("cluster.name", "lab")
            .put("node.processors", 2)
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        Node node = new OpenSearchServer(settings);
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        node.start();
        ended.await();
    }
}
