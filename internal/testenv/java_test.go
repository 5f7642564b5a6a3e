//go:build integration

package testenv

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJavaProgramReachesTheBroker(t *testing.T) {
	t.Parallel()
	k := Kafka(t)
	topic := k.Topic(2)
	file := filepath.Join(t.TempDir(), "Partitions.java")
	const program = `import java.util.*;
import org.apache.kafka.clients.admin.*;
public class Partitions {
  public static void main(String[] args) throws Exception {
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
      System.out.println(admin.describeTopics(List.of(args[1])).allTopicNames().get().get(args[1]).partitions().size());
    }
  }
}
`
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := Java(t, context.Background(), []string{KafkaClients, PulsarClient}, file, strings.Join(k.Bootstrap, ","), topic).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "2" {
		t.Fatalf("%v: %s", err, out)
	}
}
