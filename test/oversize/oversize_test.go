//go:build integration

package oversize

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/binlogmq/binlogmq/admin"
	"github.com/binlogmq/binlogmq/internal/leak"
	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/consume"
	"github.com/binlogmq/binlogmq/test/process"
	"github.com/binlogmq/binlogmq/test/workload"
)

var seed = flag.Uint64("seed", 0, "seed of rows and kills; 0 takes one from the clock")

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	fmt.Printf("seed %d\n", *seed)
	leak.Main(m)
}

const patience = 10 * time.Minute

// outlet is a sink and how to read what it has sent.
type outlet struct {
	name, how, codec string
	sink             string // kind of sink, and its lines
	dead             string // dead_letter_topic
	repeats          bool   // a crash may repeat messages
	file             string
	cluster          *testenv.KafkaCluster
	broker           *testenv.PulsarBroker
	topic            string
}

func (o *outlet) config() string {
	c := fmt.Sprintf("      - name: %s\n        oversize: %s\n        codec: %s\n        canal_json: { binary: base64 }\n        topic: %q\n        %s\n", o.name, o.how, o.codec, o.topic, o.sink)
	if o.dead != "" {
		c += fmt.Sprintf("        dead_letter_topic: %q\n", o.dead)
	}
	return c
}

func (o *outlet) read(t testing.TB, topic string) (msgs []workload.Message) {
	t.Helper()
	add := func(m workload.Message) { msgs = append(msgs, m) }
	switch {
	case o.cluster != nil:
		consume.Kafka(t, o.cluster.Bootstrap, topic, strings.Contains(o.sink, "transactional"), add)
	case o.broker != nil:
		consume.Pulsar(t, o.broker.URL, topic, add)
	default:
		f, err := os.Open(o.file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		in := bufio.NewReader(f)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				break
			}
			var l struct {
				Topic   string
				Key     string
				Value   json.RawMessage
				Base64  []byte `json:"value_base64"`
				Headers map[string]string
			}
			if err := json.Unmarshal(line, &l); err != nil {
				t.Fatal(err)
			}
			if l.Topic == topic {
				if l.Base64 != nil {
					l.Value = l.Base64
				}
				add(workload.Message{Topic: l.Topic, Key: []byte(l.Key), Value: l.Value, Headers: l.Headers})
			}
		}
	}
	return msgs
}

// join puts parts together as docs/formats.md tells consumers to. Where messages may be repeated, a
// part that is held already is left out.
func join(t testing.TB, msgs []workload.Message, repeats bool) (out []workload.Message, parts int) {
	t.Helper()
	type pending struct {
		m    workload.Message
		have int
	}
	waiting := map[string]*pending{}
	for _, m := range msgs {
		text, ok := m.Headers["part"]
		if !ok {
			out = append(out, m)
			continue
		}
		var i, n int
		if _, err := fmt.Sscanf(text, "%d/%d", &i, &n); err != nil {
			t.Fatalf("part %q: %v", text, err)
		}
		parts++
		id := fmt.Sprintf("%d %s %s", m.Partition, m.Key, m.Headers["seq"])
		p := waiting[id]
		switch {
		case p == nil && i == 1:
			p = &pending{m, 1}
			p.m.Value = bytes.Clone(m.Value)
			waiting[id] = p
		case p == nil && repeats: // of a value that was complete before
			continue
		case p == nil || i > p.have+1 || i <= p.have && !repeats:
			t.Fatalf("part %s of %s comes out of order", text, id)
		case i == p.have+1:
			p.m.Value = append(p.m.Value, m.Value...)
			p.have++
		}
		if p.have == n {
			out = append(out, p.m)
			delete(waiting, id)
		}
	}
	if len(waiting) > 0 {
		t.Fatalf("%d values are not complete", len(waiting))
	}
	return out, parts
}

// version is one state of a row, as the source has it.
type version struct {
	v                  int
	bytes              int64
	bodySum, scanSum   string
	scanBytes, deleted int64
}

// source writes large rows and remembers what it wrote.
type source struct {
	t    testing.TB
	db   *testenv.Server
	name string // schema.paper
	rng  *rand.Rand
	rows map[int][]version
}

func newSource(t testing.TB, db *testenv.Server) *source {
	s := &source{t: t, db: db, name: db.Database() + ".paper", rng: rand.New(rand.NewPCG(*seed, 1)), rows: map[int][]version{}}
	db.Exec("CREATE TABLE " + s.name + " (id INT PRIMARY KEY, v INT, body LONGTEXT CHARACTER SET utf8mb4, scan LONGBLOB)")
	return s
}

// put inserts or updates a row whose columns have about so many bytes.
func (s *source) put(id, body, scan int) {
	s.t.Helper()
	v := len(s.rows[id]) + 1
	// Text of several bytes a character, and nothing that compresses to nothing.
	text := fmt.Sprintf("REPEAT(CONCAT('é漢\"\\\\',HEX(RANDOM_BYTES(500))),%d)", body/1007)
	blob := fmt.Sprintf("REPEAT(RANDOM_BYTES(1000),%d)", scan/1000)
	if v == 1 {
		s.db.Exec(fmt.Sprintf("INSERT INTO %s VALUES (%d,1,%s,%s)", s.name, id, text, blob))
	} else {
		s.db.Exec(fmt.Sprintf("UPDATE %s SET v=%d, body=%s, scan=%s WHERE id=%d", s.name, v, text, blob, id))
	}
	s.remember(id)
}

// remember notes the row as the source has it now.
func (s *source) remember(id int) {
	s.t.Helper()
	r := s.db.Query(fmt.Sprintf("SELECT LENGTH(body), SHA2(body,256), LENGTH(scan), SHA2(scan,256) FROM %s WHERE id=%d", s.name, id))[0]
	n := func(text string) int64 {
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		return i
	}
	s.rows[id] = append(s.rows[id], version{v: len(s.rows[id]) + 1, bytes: n(r[0]), bodySum: r[1], scanBytes: n(r[2]), scanSum: r[3]})
}

func (s *source) remove(id int) {
	s.t.Helper()
	s.db.Exec(fmt.Sprintf("DELETE FROM %s WHERE id=%d", s.name, id))
	last := s.rows[id][len(s.rows[id])-1]
	last.deleted = 1
	s.rows[id] = append(s.rows[id], last)
}

// row is what a message says of a row.
type row struct {
	id, v   int
	body    string
	scan    []byte
	deleted bool
}

func parse(t testing.TB, codec string, value []byte) row {
	t.Helper()
	var r row
	switch codec {
	case "maxwell":
		var m struct {
			Type string
			Data struct {
				ID, V int
				Body  string
				Scan  []byte
			}
		}
		if err := json.Unmarshal(value, &m); err != nil {
			t.Fatalf("%v: %.200s", err, value)
		}
		r = row{m.Data.ID, m.Data.V, m.Data.Body, m.Data.Scan, m.Type == "delete"}
	default:
		var m struct {
			Type string
			Data []map[string]string
		}
		if err := json.Unmarshal(value, &m); err != nil {
			t.Fatalf("%v: %.200s", err, value)
		}
		d := m.Data[0]
		r.id, _ = strconv.Atoi(d["id"])
		r.v, _ = strconv.Atoi(d["v"])
		r.body, r.deleted = d["body"], m.Type == "DELETE"
		var err error
		if r.scan, err = base64.StdEncoding.DecodeString(d["scan"]); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// is holds a column of a message to the source: whole, or replaced by the length and sum that the source gives.
func is(t testing.TB, what, content string, size int64, sum string) (stub bool) {
	t.Helper()
	var s struct {
		Stub *struct {
			Bytes  int64
			SHA256 string
		} `json:"binlogmq_stub"`
	}
	if len(content) < 200 && json.Unmarshal([]byte(content), &s) == nil && s.Stub != nil {
		if s.Stub.Bytes != size || s.Stub.SHA256 != sum {
			t.Errorf("%s: the stub %s, the source has %d bytes of sum %s", what, content, size, sum)
		}
		return true
	}
	got := sha256.Sum256([]byte(content))
	if int64(len(content)) != size || hex.EncodeToString(got[:]) != sum {
		t.Errorf("%s: %d bytes of sum %x, the source has %d of %s", what, len(content), got, size, sum)
	}
	return false
}

// compare holds an outlet's messages to the source: each version of each row once, in order; of dead letters some. It returns how
// many were stubs, and parts.
func (s *source) compare(o *outlet, msgs []workload.Message, letters bool) (stubs, parts int) {
	t := s.t
	t.Helper()
	whole, parts := join(t, msgs, o.repeats)
	next := map[int]int{}
	seen := map[string]bool{}
	for _, m := range whole {
		if o.repeats {
			id := fmt.Sprint(m.Partition, m.Headers["seq"], m.Headers["sub"])
			if seen[id] {
				continue
			}
			seen[id] = true
		}
		if m.Headers["seq"] == "" || m.Headers["gtid"] == "" || m.Headers["row"] == "" {
			t.Fatalf("%s: headers %v", o.name, m.Headers)
		}
		r := parse(t, o.codec, m.Value)
		at := next[r.id]
		for letters && at+1 < len(s.rows[r.id]) && s.rows[r.id][at].v != r.v {
			at++ // which was no dead letter
		}
		if at >= len(s.rows[r.id]) || s.rows[r.id][at].v != r.v || (s.rows[r.id][at].deleted != 0) != r.deleted {
			t.Errorf("%s: row %d version %d comes as number %d of %d", o.name, r.id, r.v, at, len(s.rows[r.id]))
			continue
		}
		next[r.id] = at + 1
		v := s.rows[r.id][at]
		what := fmt.Sprintf("%s: row %d version %d", o.name, r.id, r.v)
		a := is(t, what+" body", r.body, v.bytes, v.bodySum)
		b := is(t, what+" scan", string(r.scan), v.scanBytes, v.scanSum)
		_, marked := m.Headers["stub"] // the largest column may be one of what was before
		if (a || b) && !marked {
			t.Errorf("%s: no header stub", what)
		}
		if marked {
			stubs++
		}
	}
	if !letters {
		for id, versions := range s.rows {
			if next[id] != len(versions) {
				t.Errorf("%s: row %d has %d of %d versions", o.name, id, next[id], len(versions))
			}
		}
	}
	return stubs, parts
}

func begin(t testing.TB, s *source, outlets []*outlet) string {
	c := fmt.Sprintf(`
deployment: test
meta: { file: { directory: %q }, save_interval: 200ms }
destinations:
  - name: %s
    source: { address: %q, user: %s, password: %s }
    tables: [%q]
    ring: { bytes: 64MiB }
    sinks:
`, filepath.Join(t.TempDir(), "meta"), strings.TrimSuffix(s.name, ".paper"), s.db.Addr, s.db.ReplUser, s.db.ReplPassword, s.name)
	for _, o := range outlets {
		c += o.config()
	}
	return c
}

// settle waits until every sink has acknowledged everything.
func settle(t testing.TB, p *process.Child, s *source) {
	t.Helper()
	p.AwaitReady()
	row := s.db.Query("SHOW BINARY LOG STATUS")[0]
	end, err := strconv.ParseInt(row[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	p.Await("every sink to have acknowledged everything", patience, func(rep *admin.Report) bool {
		d := rep.Destinations[0]
		at, _, _ := strings.Cut(d.Position, " ")
		file, offset, ok := strings.Cut(at, ":")
		n, err := strconv.ParseInt(offset, 10, 64)
		if !ok || err != nil || file < row[0] || file == row[0] && n < end {
			return false
		}
		for _, k := range d.Sinks {
			if k.Behind != 0 {
				return false
			}
		}
		return true
	})
}

func quoted(list []string) string { return `"` + strings.Join(list, `","`) + `"` }

func kills() int {
	if n, err := strconv.Atoi(os.Getenv("OVERSIZE_KILLS")); err == nil {
		return n
	}
	return 3
}

// TestLargeRowsKilled proves I4, I5 and I7 for messages above the limit: rows of 0.5 to 20 MB, with the program killed while
// their parts are on their way, arrive once and in order in every kind of sink, and what the parts make is what the source has.
func TestLargeRowsKilled(t *testing.T) {
	db, k, b := testenv.MySQL(t, "mysql"), testenv.Kafka(t), testenv.Pulsar(t)
	s := newSource(t, db)
	name := testenv.Name(t)
	at := func(delivery, compression string) string {
		return fmt.Sprintf("kafka: { brokers: [%s], delivery: %s, compression: %s, topics: { partitions: 2 } }", quoted(k.Bootstrap), delivery, compression)
	}
	with := func(producer string) string {
		return fmt.Sprintf("pulsar: { url: %q, admin_url: %q, %s topics: { partitions: 2 } }", b.URL, b.AdminURL, producer)
	}
	ptopic := "persistent://public/default/" + name
	lines := filepath.Join(t.TempDir(), "lines")
	outlets := []*outlet{
		{name: "sequenced", how: "split", codec: "maxwell", sink: at("sequenced", "none"), cluster: k, topic: name + ".sequenced"},
		{name: "transactional", how: "dead_letter", codec: "canal-json", sink: at("transactional", "lz4"), cluster: k, topic: name + ".transactional", dead: name + ".dead"},
		{name: "at-least-once", how: "split", codec: "canal-json", sink: at("at_least_once", "none"), cluster: k, topic: name + ".again", repeats: true},
		{name: "wire", how: "split", codec: "canal-json", sink: with("producer: wire,"), broker: b, topic: ptopic + ".wire"},
		{name: "batched", how: "stub", codec: "maxwell", sink: with("producer: wire, batching: true, compression: zstd,"), broker: b, topic: ptopic + ".batched"},
		{name: "client", how: "dead_letter", codec: "maxwell", sink: with("producer: client,"), broker: b, topic: ptopic + ".client", dead: ptopic + ".letters"},
		{name: "lines", how: "split", codec: "maxwell", sink: fmt.Sprintf("file: { path: %q }\n        max_message_bytes: 300KiB", lines), file: lines, topic: "lines", repeats: true},
	}
	config := begin(t, s, outlets)
	p := process.Start(t, config)
	p.AwaitReady()

	// A row of 20 MB has twenty parts: killed when some of them have come, a few times.
	s.put(1, 500_000, 1000)
	first := k.Admin()
	endOf := func() (n int64) {
		ends, err := first.ListEndOffsets(context.Background(), outlets[0].topic)
		if err == nil {
			ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
		}
		return n
	}
	inMidst := 0
	for i := 0; i < kills() || inMidst == 0 && i < kills()+40; i++ {
		was := endOf()
		s.put(2+i, []int{20_000_000, 3_000_000, 5_000_000}[i%3], []int{1000, 2_000_000, 1000}[i%3])
		for end := time.Now().Add(patience); endOf() < was+2; time.Sleep(2 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no part has come")
			}
		}
		p.Kill()
		if n := endOf() - was; n < []int64{20, 6, 5}[i%3] {
			inMidst++
		}
		p = process.Start(t, config)
		s.put(1, s.rng.IntN(1_500_000), s.rng.IntN(1_000_000))
	}
	if inMidst == 0 {
		t.Error("no kill came while a row's parts were on their way")
	}
	s.put(3, 1_000_000, 500_000) // an update holds what was before, too
	s.remove(3)
	s.put(1, 100, 100)
	settle(t, p, s)
	p.Stop()

	for _, o := range outlets {
		stubs, parts := s.compare(o, o.read(t, o.topic), false)
		if o.how == "split" && (parts < 5 || stubs > 0) || o.how != "split" && (stubs < 2 || parts > 0) {
			t.Errorf("%s: %d stubs, %d parts", o.name, stubs, parts)
		}
		letters := 0
		if o.dead != "" {
			got := o.read(t, o.dead)
			letters = len(got)
			if n, _ := s.compare(o, got, true); n > 0 {
				t.Errorf("%s: %d stubs among the dead letters", o.name, n)
			}
		}
		t.Logf("%s: %d stubs, %d parts, %d dead letters", o.name, stubs, parts, letters)
	}
}
