import com.alibaba.otter.canal.filter.aviater.AviaterRegexFilter;
import java.io.BufferedReader;
import java.io.InputStreamReader;

/** What Canal's own filter says: of each line of standard input, FILTER and SCHEMA.TABLE between which is a tab, true, false, or the kind of its exception. */
public class CanalFilter {
  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] f = line.split("\t", -1);
      String says;
      try {
        says = String.valueOf(new AviaterRegexFilter(f[0]).filter(f[1]));
      } catch (Exception e) {
        says = e.getClass().getSimpleName();
      }
      System.out.println(says);
    }
  }
}
