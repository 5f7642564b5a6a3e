//go:build integration

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

// told is a message with the codec that wrote it.
type told struct {
	workload.Message
	codec    string
	seq, sub int64
}

// history reads everything that targets hold and checks that each change is there once, with numbers that
// rise along each partition; it rebuilds the tables in the order of the numbers, over all topics and partitions.
func (r *run) history(ws []*workload.Writer, targets ...target) {
	r.t.Helper()
	var all []told
	at := map[string]string{} // gtid, row, sub -> where
	rows := map[string]bool{}
	for _, to := range targets {
		for _, table := range workload.Tables {
			last := map[int32]told{}
			for _, m := range to.read(r.t, table.Name) {
				x := told{Message: m, codec: to.codec()}
				var err error
				if x.seq, err = strconv.ParseInt(m.Headers["seq"], 10, 64); err != nil {
					r.t.Fatal(err)
				}
				if s := m.Headers["sub"]; s != "" {
					if x.sub, err = strconv.ParseInt(s, 10, 64); err != nil {
						r.t.Fatal(err)
					}
				}
				if was, ok := last[m.Partition]; ok && (x.seq < was.seq || x.seq == was.seq && x.sub <= was.sub) {
					r.t.Errorf("%s/%d: message %d.%d comes after %d.%d", m.Topic, m.Partition, x.seq, x.sub, was.seq, was.sub)
				}
				last[m.Partition] = x
				row := m.Headers["gtid"] + " " + m.Headers["row"]
				id := row + " " + m.Headers["sub"]
				where := fmt.Sprintf("%s/%d seq %d", m.Topic, m.Partition, x.seq)
				if before, ok := at[id]; ok {
					r.t.Errorf("change %s is there twice: %s and %s", id, before, where)
				}
				at[id] = where
				rows[row] = true
				all = append(all, x)
			}
		}
	}
	slices.SortFunc(all, func(a, b told) int {
		if a.seq != b.seq {
			return int(min(max(a.seq-b.seq, -1), 1))
		}
		return int(a.sub - b.sub)
	})
	check := &workload.Checker{Schema: r.schema}
	for _, m := range all {
		check.Codec = m.codec
		if err := check.Add(m.Message); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := check.Compare(r.db.Connect("")); err != nil {
		r.t.Error(err)
	}
	committed := int64(0)
	for _, w := range ws {
		committed += w.Changes
	}
	if int64(len(rows)) != committed {
		r.t.Errorf("%d row changes committed, %d arrived", committed, len(rows))
	}
	r.t.Logf("%d row changes committed, %d messages", committed, len(all))
}

// noise changes rows of a table that nobody checks, until stop is called: what is captured or not changes all numbers.
func (r *run) noise() (stop func()) {
	r.db.Exec("CREATE TABLE `" + r.schema + "`.noise (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
	c := r.db.Connect(r.schema)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if _, err := c.Execute("INSERT INTO noise (v) VALUES (1), (2), (3)"); err != nil {
				r.t.Error(err)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	stop = func() { cancel(); <-done }
	r.t.Cleanup(stop)
	return stop
}

// widen gives the tables' topics of a target so many partitions.
func widen(t *testing.T, to target, partitions int) {
	t.Helper()
	for _, table := range workload.Tables {
		switch to := to.(type) {
		case *sequencedTarget:
			topic := to.prefix + "." + table.Name
			res, err := to.cluster.Admin().UpdatePartitions(context.Background(), partitions, topic)
			if err == nil {
				err = res.Error()
			}
			if err != nil {
				t.Fatal(err)
			}
		case *pulsarTarget:
			url := fmt.Sprintf("%s/admin/v2/persistent/public/default/%s.%s/partitions", to.broker.AdminURL, to.prefix, table.Name)
			res, err := http.Post(url, "application/json", strings.NewReader(strconv.Itoa(partitions)))
			if err != nil {
				t.Fatal(err)
			}
			var body bytes.Buffer
			_, _ = body.ReadFrom(res.Body)
			res.Body.Close()
			http.DefaultClient.CloseIdleConnections()
			if res.StatusCode/100 != 2 {
				t.Fatalf("%s: %s %s", url, res.Status, body.String())
			}
		}
	}
}

// TestChangedAfterKill proves I5 and I7: killed in the middle of the work, and started again with other topics, another codec, other
// tables, another topic for DDL or more partitions, the program sends each change once, under the old or the new configuration.
func TestChangedAfterKill(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, codec string) target{
		"kafka": func(t *testing.T, codec string) target {
			return &sequencedTarget{&kafkaTarget{testenv.Kafka(t), testenv.Name(t), codec}, ", topics: { partitions: 3 }"}
		},
		"pulsar": func(t *testing.T, codec string) target {
			return &pulsarTarget{testenv.Pulsar(t), testenv.Name(t), codec, "producer: client,"}
		},
		"pulsar-wire": func(t *testing.T, codec string) target {
			return &pulsarTarget{testenv.Pulsar(t), testenv.Name(t), codec, "producer: wire, batching: true,"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(*seed, 4))
			first, second := make(t, "canal-json"), make(t, "maxwell")
			r := newRun(t, testenv.MySQL(t, "mysql"), first)
			quiet := r.noise()
			ws := r.writers(500)
			p := process.Start(t, r.config)
			p.AwaitReady()
			stop := r.writeOn(ws, 2*time.Millisecond)
			finished := 0
			change := func(what string, f func()) {
				p.Await("progress", patience, func(rep *admin.Report) bool { return rep.Destinations[0].Sinks[0].Rows > 0 })
				time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond)
				p.Kill()
				f()
				p = process.Start(t, r.config)
				p.Await(what+": a new epoch", patience, func(*admin.Report) bool { return strings.Contains(p.Log(), "a new epoch begins") })
				if strings.Contains(p.Log(), "what was done before is finished") {
					finished++
				}
			}
			replace := func(old, new string) func() {
				return func() {
					if !strings.Contains(r.config, old) {
						t.Fatalf("no %q in the configuration", old)
					}
					r.config = strings.Replace(r.config, old, new, 1)
				}
			}
			tables := fmt.Sprintf("tables: [\"%s.*\"]", r.schema)
			change("topic and codec", func() {
				replace("codec: "+first.codec(), "codec: "+second.codec())()
				replace(first.sink(), second.sink())()
			})
			change("tables", replace(tables, fmt.Sprintf("tables: [\"%s.*\", \"!%s.noise\"]", r.schema, r.schema)))
			change("partitions", func() { widen(t, second, 5) })
			change("a topic for DDL", replace("codec: ", "ddl_topic: ddl."+r.schema+"\n        codec: "))
			change("filter, back to all tables", func() {
				replace(fmt.Sprintf("tables: [\"%s.*\", \"!%s.noise\"]", r.schema, r.schema), tables)()
				replace("ddl_topic: ddl."+r.schema+"\n", fmt.Sprintf("tables: [\"!%s.noise\"]\n", r.schema))()
			})
			stop()
			quiet()
			r.settle(p)
			p.Stop()
			r.history(ws, first, second)
			if finished == 0 {
				t.Error("no old configuration had to be finished")
			}
			t.Logf("%d of 5 changes met messages beyond the cursor", finished)
		})
	}
}
