import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends a message for each key of standard input (base64, one a line) with the ordinary producer and its default
 * settings, and prints the partition that it chose for each.
 *
 * <p>Arguments: BOOTSTRAP TOPIC
 */
public class KafkaPartitions {
  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    Map<String, Object> config = Map.of("bootstrap.servers", args[0]);
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    try (KafkaProducer<byte[], byte[]> producer =
        new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        sent.add(producer.send(new ProducerRecord<>(args[1], Base64.getDecoder().decode(line), new byte[0])));
      }
      producer.flush();
      StringBuilder out = new StringBuilder();
      for (Future<RecordMetadata> f : sent) {
        out.append(f.get().partition()).append('\n');
      }
      System.out.print(out);
    }
  }
}
