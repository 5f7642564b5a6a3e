import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.LocalTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.formats.json.canal.CanalJsonFormatFactory;
import org.apache.flink.formats.json.debezium.DebeziumJsonFormatFactory;
import org.apache.flink.formats.json.maxwell.MaxwellJsonFormatFactory;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.connector.format.DecodingFormat;
import org.apache.flink.table.data.ArrayData;
import org.apache.flink.table.data.MapData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.factories.DeserializationFormatFactory;
import org.apache.flink.table.runtime.connector.source.ScanRuntimeProviderContext;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.utils.LogicalTypeParser;
import org.apache.flink.table.types.utils.TypeConversions;
import org.apache.flink.util.Collector;
import org.apache.flink.util.SimpleUserCodeClassLoader;
import org.apache.flink.util.UserCodeClassLoader;

/**
 * Decodes messages with Flink's formats canal-json, maxwell-json and debezium-json, made by the factories that Flink SQL
 * makes them with, and with all metadata columns that each offers. The format debezium+schema is debezium-json with its
 * option schema-include.
 *
 * <p>Arguments: FORMAT|TABLE|ROW&lt;...&gt;..., a row type of Flink SQL for each table. Standard input: FORMAT TABLE VALUE
 * lines, the value in base64. Prints one JSON object a message: the rows that it gave, each with its kind, its columns
 * and the metadata columns as text; or why it refused the message. The VALUE null is a tombstone.
 */
public class FlinkReader {
  private record Table(
      DeserializationSchema<RowData> schema, List<String> names, List<DataType> types, List<RowData.FieldGetter> getters) {}

  public static void main(String[] args) throws Exception {
    Map<String, Table> tables = new HashMap<>();
    for (String arg : args) {
      String[] words = arg.split("\\|", 3);
      tables.put(words[0] + ' ' + words[1], table(words[0], words[2]));
    }
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ", -1);
      Table t = tables.get(words[0] + ' ' + words[1]);
      List<String> rows = new ArrayList<>();
      byte[] value = words[2].equals("null") ? null : Base64.getDecoder().decode(words[2]);
      try {
        t.schema.deserialize(value, new Collector<>() {
          @Override
          public void collect(RowData row) {
            rows.add(show(t, row));
          }

          @Override
          public void close() {}
        });
      } catch (Exception e) {
        out.println("{\"refused\":\"" + base64(e + ": " + e.getCause()) + "\"}");
        continue;
      }
      out.println("[" + String.join(",", rows) + "]");
    }
    out.flush();
  }

  private static Table table(String format, String type) throws Exception {
    Configuration options = new Configuration();
    if (format.equals("debezium+schema")) {
      options.setString("schema-include", "true");
    }
    DeserializationFormatFactory factory =
        switch (format) {
          case "canal-json" -> new CanalJsonFormatFactory();
          case "maxwell" -> new MaxwellJsonFormatFactory();
          default -> new DebeziumJsonFormatFactory();
        };
    DecodingFormat<DeserializationSchema<RowData>> decoding = factory.createDecodingFormat(null, options);
    LogicalType logical = LogicalTypeParser.parse(type, FlinkReader.class.getClassLoader());
    DataType physical = TypeConversions.fromLogicalToDataType(logical);
    List<String> names = new ArrayList<>(DataType.getFieldNames(physical));
    List<DataType> types = new ArrayList<>(DataType.getFieldDataTypes(physical));
    List<String> metadata = new ArrayList<>();
    decoding.listReadableMetadata().forEach((name, t) -> {
      metadata.add(name);
      names.add("metadata " + name);
      types.add(t);
    });
    decoding.applyReadableMetadata(metadata);
    DeserializationSchema<RowData> schema =
        decoding.createRuntimeDecoder(ScanRuntimeProviderContext.INSTANCE, physical);
    schema.open(new DeserializationSchema.InitializationContext() {
      @Override
      public MetricGroup getMetricGroup() {
        return new UnregisteredMetricsGroup();
      }

      @Override
      public UserCodeClassLoader getUserCodeClassLoader() {
        return SimpleUserCodeClassLoader.create(FlinkReader.class.getClassLoader());
      }
    });
    List<RowData.FieldGetter> getters = new ArrayList<>();
    for (int i = 0; i < types.size(); i++) {
      getters.add(RowData.createFieldGetter(types.get(i).getLogicalType(), i));
    }
    return new Table(schema, names, types, getters);
  }

  private static String show(Table t, RowData row) {
    StringBuilder b = new StringBuilder("{\"kind\":\"").append(row.getRowKind().shortString()).append("\",\"row\":{");
    for (int i = 0; i < t.names.size(); i++) {
      Object v = t.getters.get(i).getFieldOrNull(row);
      String value = v == null ? "null" : '"' + base64(text(v, t.types.get(i).getLogicalType())) + '"';
      b.append(i == 0 ? "" : ",").append('"').append(t.names.get(i)).append("\":").append(value);
    }
    return b.append("}}").toString();
  }

  /** The value as MySQL shows it, times with six digits and bytes in hexadecimal. */
  private static String text(Object v, LogicalType type) {
    switch (type.getTypeRoot()) {
      case DATE:
        return LocalDate.ofEpochDay((int) v).toString();
      case TIME_WITHOUT_TIME_ZONE:
        return LocalTime.ofNanoOfDay((int) v * 1_000_000L).format(DateTimeFormatter.ISO_LOCAL_TIME);
      case TIMESTAMP_WITHOUT_TIME_ZONE:
      case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
        return ((TimestampData) v).toLocalDateTime().format(DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss.SSSSSS"));
      case VARBINARY:
        return HexFormat.of().formatHex((byte[]) v);
      case ARRAY:
        ArrayData array = (ArrayData) v;
        List<String> words = new ArrayList<>();
        for (int i = 0; i < array.size(); i++) {
          words.add(array.getString(i).toString());
        }
        return String.join(",", words);
      case MAP:
        return "of " + ((MapData) v).size();
      default:
        return v.toString();
    }
  }

  private static String base64(String s) {
    return Base64.getEncoder().encodeToString(s.getBytes(StandardCharsets.UTF_8));
  }
}
