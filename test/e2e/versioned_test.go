//go:build integration

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// TestAnotherViewAfterKill proves I5 and I7: the view of system-versioned tables is changed after a kill. What was sent under the former one is finished under
// it, each change once, and what comes later shows as it is stored, in a new epoch.
func TestAnotherViewAfterKill(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(*seed, 10))
	db := testenv.MySQL(t, "mariadb")
	to := &sequencedTarget{&kafkaTarget{testenv.Kafka(t), testenv.Name(t), "canal-json"}, ", topics: { partitions: 1 }"}
	r := newRun(t, db, to)
	r.config = strings.Replace(r.config, "    ring:", "    system_versioned: live\n    ring:", 1)
	c := db.Connect(r.schema)
	var want []string
	exec := func(statement string, messages ...string) {
		t.Helper()
		if _, err := c.Execute(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		want = append(want, messages...)
	}
	exec("CREATE TABLE v (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING")
	p := process.Start(t, r.config)
	p.AwaitReady()
	for id := range 100 {
		exec(fmt.Sprintf("INSERT INTO v VALUES (%d,0)", id), fmt.Sprintf("INSERT id %d", id))
		exec(fmt.Sprintf("UPDATE v SET n=1 WHERE id=%d", id), fmt.Sprintf("UPDATE id %d", id))
		if id%3 == 0 {
			exec(fmt.Sprintf("DELETE FROM v WHERE id=%d", id), fmt.Sprintf("DELETE id %d", id))
		}
	}
	time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
	p.Kill()
	r.config = strings.Replace(r.config, "system_versioned: live", "system_versioned: raw", 1)
	p = process.Start(t, r.config)
	logged(p, "what was done before is finished", 1)
	r.settle(p)
	for id := 1000; id < 1010; id++ {
		key := fmt.Sprintf("id,row_end %d", id)
		exec(fmt.Sprintf("INSERT INTO v VALUES (%d,0)", id), "INSERT "+key)
		exec(fmt.Sprintf("UPDATE v SET n=1 WHERE id=%d", id), "UPDATE "+key, "INSERT "+key) // the former version
		exec(fmt.Sprintf("DELETE FROM v WHERE id=%d", id), "DELETE "+key, "INSERT "+key)    // another key
	}
	r.settle(p)
	p.Stop()
	var got []string
	for _, m := range to.read(t, "v") {
		var v struct {
			Type string              `json:"type"`
			Keys []string            `json:"pkNames"`
			Data []map[string]string `json:"data"`
		}
		if err := json.Unmarshal(m.Value, &v); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %s", v.Type, strings.Join(v.Keys, ","), v.Data[0]["id"]))
	}
	if !slices.Equal(got, want) {
		i := 0
		for i < len(got) && i < len(want) && got[i] == want[i] {
			i++
		}
		t.Errorf("seed %d: %d messages, want %d; equal up to the one of index %d:\n%q, want\n%q", *seed, len(got), len(want), i, got[i:min(i+5, len(got))], want[i:min(i+5, len(want))])
	}
}
