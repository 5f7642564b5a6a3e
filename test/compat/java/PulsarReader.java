import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;

/**
 * Reads topics, partition by partition, from the first message to where they end now, with the ordinary reader, and
 * prints one JSON object a message. With LANES=1 in the environment it prints one object a partition instead, with the number of its messages
 * and a hash over them.
 *
 * <p>Arguments: URL TOPIC...
 */
public class PulsarReader {
  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
    boolean lanes = System.getenv("LANES") != null;
    try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build()) {
      for (String topic : List.of(args).subList(1, args.length)) {
        List<String> partitions = client.getPartitionsForTopic(topic).get();
        for (int i = 0; i < partitions.size(); i++) {
          try (Reader<byte[]> reader =
              client.newReader().topic(partitions.get(i)).startMessageId(MessageId.earliest).create()) {
            Lane lane = new Lane();
            while (reader.hasMessageAvailable()) {
              Message<byte[]> m = reader.readNext(1, TimeUnit.MINUTES);
              if (m == null) {
                throw new IllegalStateException("no message of " + partitions.get(i) + " within a minute");
              }
              if (lanes) {
                TreeMap<String, byte[]> headers = new TreeMap<>();
                m.getProperties().forEach((name, value) -> headers.put(name, value.getBytes(StandardCharsets.UTF_8)));
                lane.add(m.getKey() == null ? null : m.getKey().getBytes(StandardCharsets.UTF_8), m.getValue(), headers);
              } else {
                print(out, topic, i, m);
              }
            }
            if (lane.messages > 0) {
              lane.print(out, topic, i);
            }
          }
        }
      }
    }
    out.flush();
  }

  private static void print(PrintStream out, String topic, int partition, Message<byte[]> m) {
    StringBuilder b = new StringBuilder();
    for (Map.Entry<String, String> p : new TreeMap<>(m.getProperties()).entrySet()) {
      b.append(b.isEmpty() ? "" : ",").append("{\"name\":").append(text(p.getKey()));
      b.append(",\"value\":").append(text(p.getValue())).append('}');
    }
    // getKey is what consumers use: for a key of bytes it is their base64.
    out.println(
        "{\"topic\":\"" + topic + "\",\"partition\":" + partition + ",\"id\":" + text(m.getMessageId().toString())
            + ",\"key\":" + text(m.getKey()) + ",\"keyIsBase64\":" + m.hasBase64EncodedKey()
            + ",\"value\":" + bytes(m.getValue()) + ",\"headers\":[" + b + "]"
            + ",\"sequence\":" + m.getSequenceId() + ",\"eventTime\":" + m.getEventTime()
            + ",\"timestamp\":" + m.getPublishTime() + ",\"producer\":" + text(m.getProducerName()) + "}");
  }

  private static String text(String s) {
    return s == null ? "null" : bytes(s.getBytes(StandardCharsets.UTF_8));
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
