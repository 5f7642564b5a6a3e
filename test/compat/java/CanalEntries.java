import com.alibaba.otter.canal.client.CanalConnector;
import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.Message;
import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Canal's own client: HOST PORT DESTINATION FILTER LAST. Prints all that it is told about each entry, until a row of the table LAST has come: a
 * line with a name and a value in base64 for each attribute, and an empty line behind each entry.
 */
public class CanalEntries {
  static final StringBuilder b = new StringBuilder();

  static void put(String name, Object value) {
    b.append(name).append('\t').append(Base64.getEncoder().encodeToString(value.toString().getBytes(StandardCharsets.UTF_8))).append('\n');
  }

  static void props(String at, List<CanalEntry.Pair> pairs) {
    for (CanalEntry.Pair p : pairs) {
      put(at + ".props." + p.getKey(), p.getValue());
    }
  }

  static void image(String at, List<CanalEntry.Column> columns) {
    for (CanalEntry.Column c : columns) {
      String name = at + "." + c.getName() + ".";
      put(name + "index", c.getIndex());
      put(name + "sqlType", c.getSqlType());
      put(name + "isKey", c.getIsKey());
      put(name + "updated", c.getUpdated());
      put(name + "isNull", c.getIsNull());
      put(name + "value", c.getValue());
      put(name + "length", c.getLength());
      put(name + "mysqlType", c.getMysqlType());
      props(name, c.getPropsList());
    }
  }

  static boolean entry(CanalEntry.Entry e, String last) throws Exception {
    CanalEntry.Header h = e.getHeader();
    put("type", e.getEntryType());
    put("header.version", h.getVersion());
    put("header.logfileName", h.getLogfileName());
    put("header.logfileOffset", h.getLogfileOffset());
    put("header.serverId", h.getServerId());
    put("header.serverenCode", h.getServerenCode());
    put("header.executeTime", h.getExecuteTime());
    put("header.sourceType", h.getSourceType());
    put("header.schemaName", h.getSchemaName());
    put("header.tableName", h.getTableName());
    put("header.eventLength", h.getEventLength());
    put("header.eventType", h.getEventType());
    put("header.gtid", h.getGtid());
    props("header", h.getPropsList());
    switch (e.getEntryType()) {
      case TRANSACTIONBEGIN:
        CanalEntry.TransactionBegin begin = CanalEntry.TransactionBegin.parseFrom(e.getStoreValue());
        put("begin.executeTime", begin.getExecuteTime());
        put("begin.transactionId", begin.getTransactionId());
        put("begin.threadId", begin.getThreadId());
        props("begin", begin.getPropsList());
        break;
      case TRANSACTIONEND:
        CanalEntry.TransactionEnd end = CanalEntry.TransactionEnd.parseFrom(e.getStoreValue());
        put("end.executeTime", end.getExecuteTime());
        put("end.transactionId", end.getTransactionId());
        props("end", end.getPropsList());
        break;
      default:
        CanalEntry.RowChange change = CanalEntry.RowChange.parseFrom(e.getStoreValue());
        put("change.tableId", change.getTableId());
        put("change.eventType", change.getEventType());
        put("change.isDdl", change.getIsDdl());
        put("change.sql", change.getSql());
        put("change.ddlSchemaName", change.getDdlSchemaName());
        put("change.rows", change.getRowDatasCount());
        props("change", change.getPropsList());
        for (int i = 0; i < change.getRowDatasCount(); i++) {
          CanalEntry.RowData row = change.getRowDatas(i);
          image("row" + i + ".before", row.getBeforeColumnsList());
          image("row" + i + ".after", row.getAfterColumnsList());
          props("row" + i, row.getPropsList());
        }
    }
    b.append('\n');
    return h.getTableName().equals(last);
  }

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
    CanalConnector connector = CanalConnectors.newSingleConnector(new InetSocketAddress(args[0], Integer.parseInt(args[1])), args[2], "", "");
    connector.connect();
    connector.subscribe(args[3]);
    for (boolean last = false; !last; ) {
      Message m = connector.getWithoutAck(100, 100L, TimeUnit.MILLISECONDS);
      if (m.getId() == -1) {
        continue;
      }
      for (CanalEntry.Entry e : m.getEntries()) {
        last |= entry(e, args[4]);
      }
      connector.ack(m.getId());
    }
    connector.disconnect();
    out.print(b);
    out.flush();
  }
}
