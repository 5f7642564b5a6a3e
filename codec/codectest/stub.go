package codectest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/event"
)

// large is a table with every kind of column that can be large.
func large(t testing.TB) *event.Table {
	return Compile(t, &event.Table{
		Schema: "shop", Name: "paper", Key: []int{0},
		Columns: []event.Column{
			{Name: "id", Type: TypeVarchar, Meta: 800, Charset: "utf8mb4"},
			{Name: "title", Type: TypeVarchar, Meta: 1000, Charset: "latin1", Nullable: true},
			{Name: "body", Type: TypeBlob, Meta: 4, Charset: "utf8mb4", Nullable: true},
			{Name: "scan", Type: TypeBlob, Meta: 4, Charset: "binary", Nullable: true},
			{Name: "doc", Type: TypeJSON, Meta: 4, Nullable: true},
			{Name: "code", Type: TypeString, Meta: 200, Charset: "binary", Nullable: true},
			{Name: "pages", Type: TypeLong, Nullable: true},
		},
	})
}

// cuttable are the columns of large that a stub may lack.
var cuttable = []string{"title", "body", "scan", "doc", "code"}

// paper makes a row of large; n scales it.
func paper(rng *rand.Rand, id string) []Cell {
	text := func(most int) []byte {
		b := make([]byte, rng.IntN(most+1))
		for i := range b {
			b[i] = byte(' ' + rng.IntN(95))
		}
		return b
	}
	scan := make([]byte, rng.IntN(3000))
	for i := range scan {
		scan[i] = byte(rng.Uint32())
	}
	cells := []Cell{V([]byte(id)), V(append(text(900), 0xe9)), V(append(text(3000), "\"é漢\n"...)), V(scan), V(jsonDoc(strings.Repeat("j", rng.IntN(127)))), V([]byte(strings.Repeat("c", rng.IntN(200)))), V(Le(3, 4))}
	if rng.IntN(8) == 0 {
		cells[1+rng.IntN(4)] = Null
	}
	return cells
}

// stubs holds a codec.Stubber to its contract: short enough, a message like any other for the format's reader, the
// largest columns replaced by their digests and no more of them than needed.
func (f Format) stubs(t *testing.T) {
	c := f.New().(codec.Stubber)
	tab := large(t)
	rng := rand.New(rand.NewPCG(1, 2))
	cut := 0
	for range 150 {
		before, after := paper(rng, "k"), paper(rng, "k")
		switch rng.IntN(4) {
		case 0:
			before = nil
		case 1:
			after = nil
		}
		r := Row(t, tab, before, after)
		full := f.encode(t, c, r)
		room := f.Overhead + 200 + rng.IntN(max(len(full)-f.Overhead, 0)+100)
		stub, err := c.AppendStub([]byte("prefix"), r, nil, room)
		if err != nil {
			if !errors.Is(err, codec.ErrNoStub) || stub != nil {
				t.Fatalf("room %d of %d: %v", room, len(full), err)
			}
			if _, err := c.AppendStub(nil, r, nil, room+3000); errors.Is(err, codec.ErrNoStub) {
				t.Fatalf("no stub in %d bytes", room+3000)
			}
			continue
		}
		if stub = stub[len("prefix"):]; len(stub) > room {
			t.Fatalf("%d bytes, room for %d", len(stub), room)
		}
		if len(full) <= room && !bytes.Equal(stub, full) {
			t.Fatalf("something is missing although all of it fits:\n%s\n%s", stub, full)
		}
		// I5: the same every time.
		if again, err := f.New().(codec.Stubber).AppendStub(nil, r, nil, room); err != nil || !bytes.Equal(again, stub) {
			t.Fatalf("I5: the second time\n%s, not\n%s (%v)", again, stub, err)
		}
		f.valid(t, stub)
		got, want := f.read(t, r, stub), f.read(t, r, full)
		smallest, gain, greatest := 1<<30, 0, 0
		for _, side := range []struct{ got, want map[string]json.RawMessage }{{got.Data, want.Data}, {got.Old, want.Old}} {
			if len(side.got) != len(side.want) {
				t.Fatalf("columns %v, not %v", side.got, side.want)
			}
			for i := range tab.Columns {
				col := &tab.Columns[i]
				g, w := side.got[col.Name], side.want[col.Name]
				if bytes.Equal(g, w) {
					for _, name := range cuttable {
						if col.Name == name && f.size(w) > 200 {
							greatest = max(greatest, f.size(w))
						}
					}
					continue
				}
				cut++
				content, err := f.Text(col, w)
				if err != nil {
					t.Fatal(err)
				}
				if digest, err := f.Text(col, g); err != nil || digest != string(codec.Digest([]byte(content))) {
					t.Fatalf("%s: %s (%v) stands for %q", col.Name, g, err, content)
				}
				if n := f.size(w); n < smallest {
					smallest, gain = n, n-f.size(g)
				}
			}
		}
		if smallest < greatest || gain > 0 && len(stub)+gain <= room {
			t.Fatalf("room %d, %d bytes: of %d bytes was cut although one of %d is left, or it would fit", room, len(stub), smallest, greatest)
		}
	}
	if cut < 80 {
		t.Errorf("only %d columns were cut", cut)
	}
	// Key columns stay, the table's own and those that are named.
	r := Row(t, tab, nil, []Cell{V([]byte(strings.Repeat("k", 700))), Null, V([]byte(strings.Repeat("b", 500))), Null, Null, Null, Null})
	room := len(f.encode(t, c, r)) - 200
	for _, key := range [][]int{nil, {2}} {
		out, err := c.AppendStub(nil, r, key, room)
		if kept := len(key) > 0; kept != errors.Is(err, codec.ErrNoStub) || !kept && !bytes.Contains(out, []byte(strings.Repeat("k", 700))) {
			t.Errorf("key %v: %s, %v", key, out, err)
		}
	}
	ddl := DDL("shop", "ALTER TABLE item ADD c INT /* "+strings.Repeat("x", 2000)+" */")
	out, err := c.AppendDDLStub(nil, ddl, f.Overhead+1000)
	if err != nil || !bytes.Contains(out, []byte(`binlogmq_stub`)) || bytes.Contains(out, []byte("xxxx")) {
		t.Errorf("%s, %v", out, err)
	}
	f.valid(t, out)
	if _, err := c.AppendDDLStub(nil, ddl, 100); !errors.Is(err, codec.ErrNoStub) {
		t.Errorf("error %v", err)
	}
}

// size is how long a value is in the message.
func (f Format) size(v json.RawMessage) int {
	var s string
	if f.Binary && json.Unmarshal(v, &s) == nil {
		return len(s)
	}
	return len(v)
}

// GoldenStubs compares stubs of every kind of large column with the file, as Golden does.
func GoldenStubs(t *testing.T, file string, c codec.Stubber) {
	t.Helper()
	var out bytes.Buffer
	tab := large(t)
	cells := func(n int) []Cell {
		return []Cell{V([]byte("k")), V([]byte(strings.Repeat("\xe9", n))), V([]byte(strings.Repeat("é", n))), V(bytes.Repeat([]byte{0xff}, n)),
			V(jsonDoc(strings.Repeat("j", min(n, 127)))), V([]byte(strings.Repeat("c", min(n, 200)))), V(Le(3, 4))}
	}
	for _, x := range []struct {
		what string
		r    *event.Row
	}{
		{"insert", Row(t, tab, nil, cells(500))}, {"update", Row(t, tab, cells(400), cells(500))}, {"delete", Row(t, tab, cells(500), nil)},
		{"snapshot", SnapshotRow(t, tab, cells(500))},
	} {
		r := x.r
		full, err := c.AppendRow(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		for room := len(full) - 1; ; room = min(room-1, room*4/5) {
			stub, err := c.AppendStub(nil, r, nil, room)
			if errors.Is(err, codec.ErrNoStub) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "# %s, room %d\n%s\n", x.what, room, stub)
			room = len(stub)
		}
	}
	ddl, err := c.AppendDDLStub(nil, DDL("shop", "ALTER TABLE item ADD c INT"), 10000)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "# ddl\n%s\n", ddl)
	golden(t, file, out.Bytes())
}

// golden compares with the file, or writes it.
func golden(t *testing.T, file string, text []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	got := bytes.Split(text, []byte("\n"))
	for i, line := range bytes.Split(want, []byte("\n")) {
		if i >= len(got) || !bytes.Equal(got[i], line) {
			t.Fatalf("%s:%d\n got %s\nwant %s", file, i+1, got[min(i, len(got)-1)], line)
		}
	}
	if len(text) != len(want) {
		t.Fatalf("%s: %d bytes written, %d expected", file, len(text), len(want))
	}
}
