//go:build bench

package bench

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/client"
	"github.com/binlogmq/binlogmq/internal/canalwire"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/process"
)

// canalFigures has one client of Canal's protocol read all rows, with batches that count memory and such that count events. The client
// looks no further into an entry than to count its rows.
func canalFigures(t *testing.T, db *testenv.Server, schemaName, file string, from int64) {
	used, ofClient, rate := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	bytes := map[string]float64{}
	units := []string{"memory", "events"}
	for range rounds {
		for _, unit := range units {
			address := process.FreeAddress(t)
			p := process.Start(t, fmt.Sprintf(`
meta: { file: { directory: %q } }
canal: { listen: %q, batch: %s }
destinations:
  - name: bench
    source: { address: %q, user: %s, password: %s }
    tables: ["%s.orders"]
    start: "%s:%d"
`, filepath.Join(t.TempDir(), "meta"), address, unit, db.Addr, db.ReplUser, db.ReplPassword, schemaName, file, from))
			p.Await("the program", time.Minute, func(*admin.Report) bool { return true })
			c := must(client.NewTCP(client.TCPOptions{Address: address, Destination: "bench"}))
			if err := c.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.Subscribe(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			own := cpu(syscall.RUSAGE_SELF)
			var begin time.Time
			n, skipped, size := 0, 0, 0
			for n < rows {
				m := must(c.GetWithoutAck(t.Context(), 1000, client.Wait(time.Second)))
				for _, raw := range m.Entries {
					size += len(raw)
					n += rowsOf(raw)
				}
				if m.ID != client.NoBatch {
					if err := c.Ack(t.Context(), m.ID); err != nil {
						t.Fatal(err)
					}
				}
				if begin.IsZero() && n > 0 {
					begin, skipped = time.Now(), n
				}
			}
			took := time.Since(begin)
			name := "canal_tcp_" + unit
			ofClient[name] = append(ofClient[name], (cpu(syscall.RUSAGE_SELF)-own).Seconds()*1e6/float64(n))
			used[name] = append(used[name], p.CPU().Seconds()*1e6/float64(n))
			rate[name] = append(rate[name], float64(n-skipped)/took.Seconds())
			bytes[name] = float64(size) / float64(n)
			if err := c.Disconnect(t.Context()); err != nil {
				t.Error(err)
			}
			p.Stop()
		}
	}
	for _, unit := range units {
		name := "canal_tcp_" + unit
		figure(name+"_bytes_per_row", bytes[name], "bytes")
		figure(name+"_rows", middle(rate[name]), "rows/s")
		figure(name+"_cpu", middle(used[name]), "cpu-s/1M-rows")
		figure(name+"_client_cpu", middle(ofClient[name]), "cpu-s/1M-rows")
	}
}

// rowsOf counts the rows of an entry.
func rowsOf(entry []byte) (n int) {
	// An entry's storeValue is field 3, a row of a RowChange field 12; no other kind of entry has a field of that number.
	if err := canalwire.Fields(entry, func(f canalwire.Field) error {
		if f.Number != 3 {
			return nil
		}
		return canalwire.Fields(f.Bytes, func(f canalwire.Field) error {
			if f.Number == 12 {
				n++
			}
			return nil
		})
	}); err != nil {
		panic(err)
	}
	return n
}
