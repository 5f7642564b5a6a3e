import com.alibaba.otter.canal.common.zookeeper.ZkClientx;
import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.meta.CanalMetaManager;
import com.alibaba.otter.canal.meta.ZooKeeperMetaManager;
import com.alibaba.otter.canal.protocol.ClientIdentity;
import com.alibaba.otter.canal.protocol.position.EntryPosition;
import com.alibaba.otter.canal.protocol.position.LogPosition;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import com.alibaba.otter.canal.server.netty.CanalServerWithNetty;
import java.net.InetSocketAddress;
import java.util.List;

/**
 * A whole Canal: PORT DESTINATION DB_HOST DB_PORT DB_USER DB_PASSWORD FILE POSITION FILTER [zookeeper SERVERS | file DIRECTORY]. Serves one destination at
 * PORT until its standard input ends. Its clients' cursors are kept in memory unless it is told where, and saved when it has ended.
 */
public class CanalServer {
  static String cursor(CanalMetaManager manager, ClientIdentity client) {
    LogPosition at = (LogPosition) manager.getCursor(client);
    EntryPosition p = at == null ? new EntryPosition() : at.getPostion();
    return p.getJournalName() + ":" + p.getPosition();
  }

  /** Waits until ZooKeeper has what Canal has in memory, which it writes from time to time and does not wait for at its end, as it does with files. */
  static void saved(CanalMetaManager memory, String destination, String servers) throws InterruptedException {
    ZooKeeperMetaManager kept = new ZooKeeperMetaManager();
    kept.setZkClientx(ZkClientx.getZkClient(servers));
    kept.start();
    for (ClientIdentity client : memory.listAllSubscribeInfo(destination)) {
      for (int left = 3000; !cursor(memory, client).equals(cursor(kept, client)); left--) {
        if (left == 0) {
          System.err.println(client + ": in ZooKeeper " + cursor(kept, client) + ", in memory " + cursor(memory, client));
          System.exit(1);
        }
        Thread.sleep(100);
      }
    }
  }

  public static void main(String[] args) throws Exception {
    CanalParameter p = new CanalParameter();
    p.setMetaMode(CanalParameter.MetaMode.MEMORY);
    if (args.length > 9 && args[9].equals("zookeeper")) {
      p.setMetaMode(CanalParameter.MetaMode.MIXED);
      p.setZkClusters(List.of(args[10]));
    } else if (args.length > 9) {
      p.setMetaMode(CanalParameter.MetaMode.LOCAL_FILE);
      p.setDataDir(args[10]);
      p.setMetaFileFlushPeriod(200);
    }
    p.setIndexMode(CanalParameter.IndexMode.MEMORY);
    p.setStorageMode(CanalParameter.StorageMode.MEMORY);
    p.setSourcingType(CanalParameter.SourcingType.MYSQL);
    p.setHaMode(CanalParameter.HAMode.HEARTBEAT);
    p.setDbAddresses(List.of(new InetSocketAddress(args[2], Integer.parseInt(args[3]))));
    p.setDbUsername(args[4]);
    p.setDbPassword(args[5]);
    p.setPositions(List.of("{\"journalName\":\"" + args[6] + "\",\"position\":" + args[7] + ",\"timestamp\":0}"));
    p.setDefaultDatabaseName("");
    p.setConnectionCharset("UTF-8");
    p.setConnectionCharsetNumber((byte) 33);
    p.setSlaveId(System.nanoTime() % 1_000_000_000 + 1_000_000_000);
    p.setDetectingEnable(false);
    p.setTsdbEnable(false);
    p.setFilterTableError(false);
    p.setBlackFilter("");
    Canal canal = new Canal();
    canal.setId(1L);
    canal.setName(args[1]);
    canal.setCanalParameter(p);
    CanalServerWithEmbedded embedded = CanalServerWithEmbedded.instance();
    embedded.setCanalInstanceGenerator(destination -> new CanalInstanceWithManager(canal, args[8]));
    embedded.start();
    embedded.start(args[1]);
    CanalServerWithNetty netty = CanalServerWithNetty.instance();
    netty.setIp("127.0.0.1");
    netty.setPort(Integer.parseInt(args[0]));
    netty.start();
    System.out.println("serving");
    System.in.read();
    if (p.getMetaMode() == CanalParameter.MetaMode.MIXED) {
      saved(embedded.getCanalInstances().get(args[1]).getMetaManager(), args[1], args[10]);
    }
    netty.stop();
    embedded.stop(args[1]);
    System.exit(0);
  }
}
