import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.Header;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueHeaderChangeEventFormat;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Reads a database with Debezium itself, from the present on, and prints one JSON object a row message: topic, key, value and
 * headers as Debezium would publish them. It ends behind the first row of the table done.
 *
 * <p>Arguments: HOST PORT USER PASSWORD DATABASE PREFIX
 */
public class DebeziumReader {
  public static void main(String[] args) throws Exception {
    Properties p = new Properties();
    p.setProperty("name", args[5]);
    p.setProperty("topic.prefix", args[5]);
    p.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
    p.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
    p.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
    p.setProperty("database.hostname", args[0]);
    p.setProperty("database.port", args[1]);
    p.setProperty("database.user", args[2]);
    p.setProperty("database.password", args[3]);
    p.setProperty("database.server.id", "76543210");
    p.setProperty("database.include.list", args[4]);
    p.setProperty("include.schema.changes", "false");
    p.setProperty("snapshot.mode", "no_data");
    p.setProperty("poll.interval.ms", "20");
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    CountDownLatch done = new CountDownLatch(1);
    DebeziumEngine<ChangeEvent<String, String>> engine =
        DebeziumEngine.create(KeyValueHeaderChangeEventFormat.of(Json.class, Json.class, Json.class))
            .using(p)
            .using((success, message, error) -> {
              if (!success) {
                System.err.println(message);
              }
              done.countDown();
            })
            .notifying(e -> {
              StringBuilder headers = new StringBuilder();
              for (Header<?> h : e.headers()) {
                if (h.getKey().endsWith("key")) { // not those of the connector's own context
                  headers.append(headers.isEmpty() ? "" : ",").append('"').append(h.getKey()).append("\":").append(h.getValue());
                }
              }
              out.println("{\"topic\":\"" + e.destination() + "\",\"key\":" + e.key() + ",\"value\":" + e.value()
                  + ",\"headers\":{" + headers + "}}");
              if (e.destination().endsWith(".done")) {
                done.countDown();
              }
            })
            .build();
    ExecutorService runner = Executors.newSingleThreadExecutor();
    runner.execute(engine);
    done.await();
    System.exit(0);
  }
}
