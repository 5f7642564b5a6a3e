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
import java.util.Random;
import java.util.concurrent.TimeUnit;

/**
 * Canal's own client: HOST PORT DESTINATION USER PASSWORD FILTER LAST [SEED], or its cluster client: SERVERS zookeeper DESTINATION
 * and so on. Prints each row change and each end of a transaction that it has acknowledged, one a line of fields between tabs, until a row of the table LAST has come. With a seed it rolls back
 * and reconnects now and then.
 */
public class CanalClient {
  static String text(String s) {
    return Base64.getEncoder().encodeToString(s.getBytes(StandardCharsets.UTF_8));
  }

  static void image(StringBuilder b, List<CanalEntry.Column> columns, boolean after) {
    b.append('\t').append(columns.size());
    for (CanalEntry.Column c : columns) {
      b.append('\t').append(c.getName()).append('\t').append(c.getIsNull() ? "-" : text(c.getValue()));
      b.append('\t').append(after && c.getUpdated() ? "updated" : "").append(c.getIsKey() ? " key" : "");
      b.append('\t').append(c.getMysqlType()).append('\t').append(c.getSqlType());
    }
  }

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
    Random random = args.length > 7 ? new Random(Long.parseLong(args[7])) : null;
    CanalConnector connector = args[1].equals("zookeeper")
        ? CanalConnectors.newClusterConnector(args[0], args[2], args[3], args[4])
        : CanalConnectors.newSingleConnector(new InetSocketAddress(args[0], Integer.parseInt(args[1])), args[2], args[3], args[4]);
    connector.connect();
    connector.subscribe(args[5]);
    boolean between = true; // transactions: one that was acknowledged in part would come again whole
    for (boolean last = false; !last; ) {
      if (random != null && between && random.nextInt(20) == 0) {
        connector.getWithoutAck(1); // whose answer says that the ack before has arrived
        connector.disconnect();
        connector.connect();
        connector.subscribe(args[5]);
      }
      Message m = random != null && random.nextBoolean() ? connector.getWithoutAck(1 + random.nextInt(30), 100L, TimeUnit.MILLISECONDS) : connector.getWithoutAck(100);
      if (m.getId() == -1 || m.getEntries().isEmpty()) {
        Thread.sleep(10);
        continue;
      }
      if (random != null && random.nextInt(5) == 0) {
        connector.rollback(m.getId());
        continue;
      }
      StringBuilder b = new StringBuilder();
      for (CanalEntry.Entry e : m.getEntries()) {
        if (e.getEntryType() == CanalEntry.EntryType.TRANSACTIONEND) {
          b.append("end\t").append(e.getHeader().getGtid()).append('\n');
        }
        if (e.getEntryType() != CanalEntry.EntryType.ROWDATA) {
          continue;
        }
        CanalEntry.RowChange change = CanalEntry.RowChange.parseFrom(e.getStoreValue());
        if (change.getIsDdl()) {
          b.append("ddl\t").append(change.getEventType()).append('\t').append(text(change.getSql())).append('\n');
          continue;
        }
        for (CanalEntry.RowData row : change.getRowDatasList()) {
          b.append("row\t").append(e.getHeader().getSchemaName()).append('\t').append(e.getHeader().getTableName()).append('\t').append(change.getEventType());
          image(b, row.getBeforeColumnsList(), false);
          image(b, row.getAfterColumnsList(), true);
          b.append('\n');
        }
        last |= e.getHeader().getTableName().equals(args[6]);
      }
      connector.ack(m.getId());
      between = m.getEntries().get(m.getEntries().size() - 1).getEntryType() == CanalEntry.EntryType.TRANSACTIONEND;
      out.print(b);
    }
    connector.getWithoutAck(1); // whose answer says that the ack before has arrived
    connector.disconnect();
    out.flush();
  }
}
