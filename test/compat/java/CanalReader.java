import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.protocol.FlatMessage;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/**
 * Parses messages of standard input (base64, one a line) into Canal's own FlatMessage with the JSON library that it
 * comes with, and prints the objects as JSON again: a member that the class does not know is lost.
 */
public class CanalReader {
  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      FlatMessage m = JSON.parseObject(Base64.getDecoder().decode(line), FlatMessage.class);
      out.println(JSON.toJSONString(m, JSONWriter.Feature.WriteNulls));
    }
    out.flush();
  }
}
