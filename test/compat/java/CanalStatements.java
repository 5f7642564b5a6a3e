import com.alibaba.otter.canal.parse.inbound.mysql.ddl.DdlResult;
import com.alibaba.otter.canal.parse.inbound.mysql.ddl.DruidDdlParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** What Canal's own parser says of each line of standard input, a statement in the database shop: type, database and table of the first that it names, blanks between. */
public class CanalStatements {
  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      List<DdlResult> all = DruidDdlParser.parse(line, "shop");
      DdlResult first = all.isEmpty() ? new DdlResult() : all.get(0);
      System.out.println(first.getType() + " " + first.getSchemaName() + " " + first.getTableName());
    }
  }
}
