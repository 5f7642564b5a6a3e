import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads topics from their first offset to where they end now, with the ordinary consumer and its default settings
 * (check.crcs among them) but for the isolation level, and prints one JSON object a message.
 *
 * <p>Arguments: BOOTSTRAP read_uncommitted|read_committed TOPIC...
 */
public class KafkaReader {
  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
    Map<String, Object> config = Map.of("bootstrap.servers", args[0], "isolation.level", args[1]);
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      List<TopicPartition> partitions = new ArrayList<>();
      for (String topic : List.of(args).subList(2, args.length)) {
        for (PartitionInfo p : consumer.partitionsFor(topic)) {
          partitions.add(new TopicPartition(topic, p.partition()));
        }
      }
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      long deadline = System.nanoTime() + Duration.ofMinutes(2).toNanos();
      while (!partitions.stream().allMatch(p -> consumer.position(p) >= ends.get(p))) {
        if (System.nanoTime() > deadline) {
          throw new IllegalStateException("two minutes without a message before the ends");
        }
        for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofSeconds(1))) {
          print(out, r);
          deadline = System.nanoTime() + Duration.ofMinutes(2).toNanos();
        }
      }
    }
    out.flush();
  }

  private static void print(PrintStream out, ConsumerRecord<byte[], byte[]> r) {
    StringBuilder b = new StringBuilder();
    for (Header h : r.headers()) {
      b.append(b.isEmpty() ? "" : ",").append("{\"name\":").append(bytes(h.key().getBytes(StandardCharsets.UTF_8)));
      b.append(",\"value\":").append(bytes(h.value())).append('}');
    }
    out.println(
        "{\"topic\":\"" + r.topic() + "\",\"partition\":" + r.partition() + ",\"offset\":" + r.offset()
            + ",\"timestamp\":" + r.timestamp() + ",\"timestampType\":\"" + r.timestampType()
            + "\",\"key\":" + bytes(r.key()) + ",\"value\":" + bytes(r.value()) + ",\"headers\":[" + b + "]}");
  }

  private static String bytes(byte[] b) {
    return b == null ? "null" : '"' + Base64.getEncoder().encodeToString(b) + '"';
  }
}
