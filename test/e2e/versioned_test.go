//go:build integration

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// TestAnotherViewAfterKill proves I5 and I7: the view of system-versioned tables is changed after a kill. What was sent under the former one is finished under
// it, each change once, and all else shows as it is stored, in a new epoch.
func TestAnotherViewAfterKill(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(*seed, 10))
	db := testenv.MySQL(t, "mariadb")
	to := &sequencedTarget{&kafkaTarget{testenv.Kafka(t), testenv.Name(t), "canal-json"}, ", topics: { partitions: 1 }"}
	r := newRun(t, db, to)
	r.config = strings.Replace(r.config, "    ring:", "    system_versioned: live\n    ring:", 1)
	c := db.Connect(r.schema)
	var live, raw [][]string // messages of each statement
	exec := func(statement string) {
		t.Helper()
		if _, err := c.Execute(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	change := func(id int, delete bool) {
		t.Helper()
		key := fmt.Sprintf("id,row_end %d", id)
		exec(fmt.Sprintf("INSERT INTO v VALUES (%d,0)", id))
		exec(fmt.Sprintf("UPDATE v SET n=1 WHERE id=%d", id)) // adds the former version
		live = append(live, []string{fmt.Sprintf("INSERT id %d", id)}, []string{fmt.Sprintf("UPDATE id %d", id)})
		raw = append(raw, []string{"INSERT " + key}, []string{"UPDATE " + key, "INSERT " + key})
		if delete {
			exec(fmt.Sprintf("DELETE FROM v WHERE id=%d", id)) // a new key
			live, raw = append(live, []string{fmt.Sprintf("DELETE id %d", id)}), append(raw, []string{"DELETE " + key, "INSERT " + key})
		}
	}
	exec("CREATE TABLE v (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING")
	config := r.config
	r.config = strings.Replace(r.config, "save_interval: 200ms", "save_interval: 1h", 1) // what the killed one has sent is not saved
	p := process.Start(t, r.config)
	p.AwaitReady()
	dies := 10 + rng.IntN(90)
	for id := range 100 {
		if change(id, id%3 == 0); id == dies {
			p.Await("rows", patience, func(r *admin.Report) bool { return r.Destinations[0].Sinks[0].Rows >= int64(dies) })
			p.Kill() // in the midst of them
		}
	}
	r.config = strings.Replace(config, "system_versioned: live", "system_versioned: raw", 1)
	p = process.Start(t, r.config)
	logged(p, "what was done before is finished", 1)
	r.settle(p)
	before := len(live)
	for id := 1000; id < 1010; id++ {
		change(id, true)
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
	for first := range before + 1 { // of those that show as they are stored
		if slices.Equal(got, slices.Concat(append(slices.Clone(live[:first]), raw[first:]...)...)) {
			t.Logf("seed %d: %d of %d statements were published under the former view", *seed, first, before)
			return
		}
	}
	t.Errorf("seed %d: %d messages, and they are not those of some statements under the former view and of all others under the new one: %q", *seed, len(got), got)
}
