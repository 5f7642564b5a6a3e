import io.debezium.transforms.ExtractNewRecordState;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Reads keys, values and key headers with Kafka Connect's JsonConverter, schemas enabled, validates them against their
 * schemas, and runs Debezium's ExtractNewRecordState on each record as a sink connector would.
 *
 * <p>Standard input: TOPIC KEY VALUE NEWKEY OLDKEY lines in base64, "-" for what is absent. Prints one JSON object a
 * message: {"rows":[...]}, each row with its kind and its columns as text in base64; the names of the schemas of key
 * and value, and the key, which the headers have, as text. A tombstone has no rows.
 */
public class ConnectReader {
  public static void main(String[] args) throws Exception {
    JsonConverter keys = new JsonConverter();
    keys.configure(Map.of("schemas.enable", true), true);
    JsonConverter values = new JsonConverter();
    // Else NULL in a column with a default becomes the default.
    values.configure(Map.of("schemas.enable", true, "replace.null.with.default", false), false);
    ExtractNewRecordState<SourceRecord> unwrap = new ExtractNewRecordState<>();
    unwrap.configure(Map.of("delete.tombstone.handling.mode", "rewrite", "add.fields", "op,table,source.ts_ms"));
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ", -1);
      String topic = words[0];
      SchemaAndValue key = keys.toConnectData(topic, bytes(words[1]));
      SchemaAndValue value = values.toConnectData(topic, bytes(words[2]));
      List<String> rows = new ArrayList<>();
      if (key.value() != null) {
        ((Struct) key.value()).validate();
      }
      if (value.value() != null) {
        Struct message = (Struct) value.value();
        message.validate();
        message.getStruct("source").validate();
        Struct before = message.getStruct("before");
        Struct after = message.getStruct("after");
        String op = message.getString("op");
        if (before != null) {
          before.validate();
          rows.add(row(op.equals("d") ? "-D" : "-U", before));
        }
        if (after != null) {
          after.validate();
          rows.add(row(op.equals("c") ? "+I" : "+U", after));
        }
        SourceRecord flat =
            unwrap.apply(new SourceRecord(null, null, topic, key.schema(), key.value(), value.schema(), message));
        check((Struct) flat.value(), after == null ? before : after, message);
      }
      out.println("{\"rows\":[" + String.join(",", rows) + "],\"key\":" + name(key) + ",\"value\":" + name(value)
          + ",\"keyText\":" + text(key) + ",\"newKey\":" + text(keys.toConnectData(topic, bytes(words[3])))
          + ",\"oldKey\":" + text(keys.toConnectData(topic, bytes(words[4]))) + "}");
    }
    out.flush();
  }

  /** Fails unless the flattened record has the row's columns and what was asked for beside them. */
  private static void check(Struct flat, Struct row, Struct message) {
    for (Field f : row.schema().fields()) {
      if (!Objects.deepEquals(flat.get(f.name()), row.get(f))) {
        throw new IllegalStateException(f.name() + " became " + flat.get(f.name()) + " in " + flat);
      }
    }
    if (!flat.get("__op").equals(message.get("op"))
        || !flat.get("__table").equals(message.getStruct("source").get("table"))
        || !flat.get("__source_ts_ms").equals(message.getStruct("source").get("ts_ms"))
        || !flat.get("__deleted").equals(message.get("after") == null ? "true" : "false")) {
      throw new IllegalStateException("added fields of " + flat);
    }
  }

  private static byte[] bytes(String word) {
    return word.equals("-") ? null : Base64.getDecoder().decode(word);
  }

  private static String name(SchemaAndValue v) {
    return v.schema() == null ? "null" : '"' + v.schema().name() + '"';
  }

  private static String text(SchemaAndValue v) {
    return v.value() == null ? "null" : '"' + base64(text(v.value())) + '"';
  }

  private static String row(String kind, Struct s) {
    StringBuilder b = new StringBuilder("{\"kind\":\"").append(kind).append("\",\"row\":{");
    for (Field f : s.schema().fields()) {
      Object v = s.get(f);
      b.append(f.index() == 0 ? "" : ",").append('"').append(f.name()).append("\":");
      b.append(v == null ? "null" : '"' + base64(text(v)) + '"');
    }
    return b.append("}}").toString();
  }

  /** Bytes in hexadecimal, a struct as NAME=VALUE..., everything else as it is. */
  private static String text(Object v) {
    if (v instanceof Struct s) {
      StringBuilder b = new StringBuilder();
      for (Field f : s.schema().fields()) {
        b.append(f.name()).append('=').append(text(s.get(f))).append(' ');
      }
      return b.toString();
    }
    if (v instanceof ByteBuffer b) {
      byte[] copy = new byte[b.remaining()];
      b.duplicate().get(copy);
      return HexFormat.of().formatHex(copy);
    }
    if (v instanceof byte[] b) {
      return HexFormat.of().formatHex(b);
    }
    return v instanceof BigDecimal d ? d.toPlainString() : String.valueOf(v);
  }

  private static String base64(String s) {
    return Base64.getEncoder().encodeToString(s.getBytes(StandardCharsets.UTF_8));
  }
}
