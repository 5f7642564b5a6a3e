import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads topics from their first offset to where they end now, with the ordinary consumer and its default settings
 * (check.crcs among them) but for the isolation level, and prints one JSON object a message. With LANES=1 in the environment it prints one object a partition instead, with the number of its messages
 * and a hash over them.
 *
 * <p>Arguments: BOOTSTRAP read_uncommitted|read_committed TOPIC...
 */
public class KafkaReader {
  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
    boolean lanes = System.getenv("LANES") != null;
    Map<TopicPartition, Lane> found = new HashMap<>();
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
          if (lanes) {
            TreeMap<String, byte[]> headers = new TreeMap<>();
            r.headers().forEach(h -> headers.put(h.key(), h.value()));
            found.computeIfAbsent(new TopicPartition(r.topic(), r.partition()), p -> new Lane()).add(r.key(), r.value(), headers);
          } else {
            print(out, r);
          }
          deadline = System.nanoTime() + Duration.ofMinutes(2).toNanos();
        }
      }
    }
    found.forEach((p, lane) -> lane.print(out, p.topic(), p.partition()));
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

  /** What a partition holds: the number of messages, and a hash over key, value and headers of all of them in order. */
  private static final class Lane {
    private long messages;
    private byte[] hash = new byte[32];

    void add(byte[] key, byte[] value, TreeMap<String, byte[]> headers) throws Exception {
      MessageDigest d = MessageDigest.getInstance("SHA-256");
      d.update(hash);
      part(d, key);
      part(d, value);
      for (Map.Entry<String, byte[]> h : headers.entrySet()) {
        part(d, h.getKey().getBytes(StandardCharsets.UTF_8));
        part(d, h.getValue());
      }
      hash = d.digest();
      messages++;
    }

    private static void part(MessageDigest d, byte[] b) {
      int n = b == null ? 0 : b.length;
      d.update(ByteBuffer.allocate(8).putLong(n).array());
      if (n > 0) {
        d.update(b);
      }
    }

    void print(PrintStream out, String topic, int partition) {
      out.println("{\"topic\":\"" + topic + "\",\"partition\":" + partition + ",\"messages\":" + messages + ",\"hash\":" + bytes(hash) + "}");
    }
  }
}
