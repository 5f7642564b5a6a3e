package event

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

const (
	uuidA = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	uuidB = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
)

func mustSet(t testing.TB, s string) GTIDSet {
	t.Helper()
	v, err := ParseGTIDSet(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestParseGTIDSet(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{" \n", ""},
		{uuidA + ":1-5", uuidA + ":1-5"},
		{strings.ToUpper(uuidA) + ":5", uuidA + ":5"},
		{strings.ReplaceAll(uuidA, "-", "") + ":1", uuidA + ":1"},
		{uuidA + ":1-10:3-5", uuidA + ":1-10"},
		{uuidA + ":7:1-3:4-6", uuidA + ":1-7"},
		{uuidA + ":1-3:7-8:5", uuidA + ":1-3:5:7-8"},
		{uuidB + ":1,\n" + uuidA + ":2", uuidA + ":2," + uuidB + ":1"},
		{uuidA + ":1-5:Blue:1-3:7:a_1:2", uuidA + ":1-5:a_1:2:blue:1-3:7"},
		{uuidA + ":blue:1, " + uuidA + ":1", uuidA + ":1:blue:1"},
		{uuidA + ":9223372036854775806", uuidA + ":9223372036854775806"},
		{"0-1-7", "0-1-7"},
		{"1-1-3, 0-2-9, 0-1-12", "0-2-9,0-1-12,1-1-3"},
		{"0-1-18446744073709551615", "0-1-18446744073709551615"},
		{"0-1-7,0-1-5", "0-1-7"},
	} {
		s := mustSet(t, c.in)
		if got := s.String(); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
		if back := mustSet(t, s.String()); !back.Equal(s) {
			t.Errorf("%q: not equal after a round trip", c.in)
		}
	}
	for _, in := range []string{
		",", "x", uuidA, uuidA + ":", uuidA + ":0", uuidA + ":5-3", uuidA + ":1-", uuidA + ":-1", uuidA + ":+1", uuidA + ":blue", uuidA + ":blue:red:1",
		uuidA + ":9223372036854775807", uuidA + ":1:thistagislongerthanthirtytwoletters:1", uuidA + ":a-b:1", "00000000-0000-0000-0000-000000000000:1",
		"3e11fa4771ca-11e1-9e33-c80aa9429562:1", "1-2", "1-2-3-4", "4294967296-1-1", "0-1-18446744073709551616", "0-1-x", "a-1-1", uuidA + ":1,",
	} {
		if s, err := ParseGTIDSet(in); err == nil {
			t.Errorf("%q parsed as %q", in, s)
		}
	}
}

func TestParseGTID(t *testing.T) {
	for _, in := range []string{uuidA + ":7", uuidA + ":blue:7", "0-1-7", "4294967295-4294967295-1"} {
		g, err := ParseGTID(in)
		if err != nil || g.String() != in {
			t.Errorf("%q: %q, %v", in, g, err)
		}
		var s GTIDSet
		s.Add(g)
		if s.String() != in || !s.Contains(g) {
			t.Errorf("%q: the set of it is %q", in, s)
		}
		var back GTID
		if err := back.UnmarshalText([]byte(in)); err != nil || back != g {
			t.Errorf("%q: unmarshalled as %q, %v", in, back, err)
		}
	}
	for _, in := range []string{"", uuidA + ":1-2", "0-1-1,1-1-1", uuidA + ":1:3", uuidA + ":1,0-1-1", "0-0-0"} {
		if g, err := ParseGTID(in); err == nil {
			t.Errorf("%q parsed as %q", in, g)
		}
	}
}

// bitmap is the naive model of a MySQL set: one bit a transaction.
type bitmap [4][80]bool

var bitmapNames = [4]GTID{{SID: [16]byte{1}}, {SID: [16]byte{1}, Tag: "blue"}, {SID: [16]byte{2}}, {SID: [16]byte{0xff}, Tag: "a"}}

func (m *bitmap) check(t *testing.T, what string, s GTIDSet) {
	t.Helper()
	for i := range m {
		g := bitmapNames[i]
		for n := 1; n < len(m[i]); n++ {
			g.Seq = uint64(n)
			if s.Contains(g) != m[i][n] {
				t.Fatalf("%s: %v contained = %v in %v", what, g, !m[i][n], s)
			}
		}
	}
	for i := range s.mysql {
		rs := s.mysql[i].ranges
		if len(rs) == 0 {
			t.Fatalf("%s: no ranges", what)
		}
		for j, r := range rs {
			if r.first >= r.end || j > 0 && rs[j-1].end >= r.first {
				t.Fatalf("%s: ranges not in canonical form: %v", what, rs)
			}
		}
	}
	if back, err := ParseGTIDSet(s.String()); err != nil || !back.Equal(s) {
		t.Fatalf("%s: text round trip: %v, %v", what, back, err)
	}
	b, _ := s.AppendBinary(nil)
	if back, err := DecodeGTIDSet(b); err != nil || !back.Equal(s) {
		t.Fatalf("%s: binary round trip: %v, %v", what, back, err)
	}
}

func randomSet(r *rand.Rand) (GTIDSet, bitmap) {
	var s GTIDSet
	var m bitmap
	for range r.IntN(40) {
		i, n := r.IntN(4), 1+r.IntN(78)
		g := bitmapNames[i]
		for ; r.IntN(3) > 0 && n < 79; n++ {
			g.Seq = uint64(n)
			s.Add(g)
			m[i][n] = true
		}
	}
	return s, m
}

func TestGTIDSetAlgebra(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, ma := randomSet(r)
		b, mb := randomSet(r)
		ma.check(t, "add", a)
		before := a.String()
		var mu, md, mi bitmap
		subset := true
		for i := range ma {
			for n := range ma[i] {
				mu[i][n] = ma[i][n] || mb[i][n]
				md[i][n] = ma[i][n] && !mb[i][n]
				mi[i][n] = ma[i][n] && mb[i][n]
				subset = subset && (!mb[i][n] || ma[i][n])
			}
		}
		u, d := a.Union(b), a.Subtract(b)
		mu.check(t, "union", u)
		md.check(t, "subtract", d)
		mi.check(t, "intersect", a.Intersect(b))
		if a.ContainsSet(b) != subset || !u.ContainsSet(a) || !u.ContainsSet(b) {
			t.Fatalf("ContainsSet: %v, %v", a, b)
		}
		if !b.Union(a).Equal(u) || a.Equal(b) != (ma == mb) {
			t.Fatalf("Equal: %v, %v", a, b)
		}
		c := a.Clone()
		c.Add(GTID{SID: [16]byte{1}, Seq: 79})
		c.Add(GTID{SID: [16]byte{9}, Seq: 1})
		if a.String() != before {
			t.Fatal("the set changed by work on others")
		}
	}
}

func TestGTIDSetMariaDB(t *testing.T) {
	s := mustSet(t, "0-1-10,0-2-12,5-1-3")
	for _, c := range []struct {
		gtid string
		in   bool
	}{{"0-1-10", true}, {"0-1-1", true}, {"0-1-11", false}, {"0-2-12", true}, {"5-1-3", true}, {"5-2-3", false}, {"1-1-1", false}} {
		g, err := ParseGTID(c.gtid)
		if err != nil || s.Contains(g) != c.in {
			t.Errorf("Contains(%s) = %v, %v", c.gtid, !c.in, err)
		}
	}
	if got := s.ConnectState(); got != "0-2-12,5-1-3" {
		t.Errorf("connect state %q", got)
	}
	s.Add(GTID{Domain: 0, Server: 1, Seq: 13}) // the first server takes over again
	if got := s.ConnectState(); got != "0-1-13,5-1-3" {
		t.Errorf("connect state %q", got)
	}
	if got := s.String(); got != "0-2-12,0-1-13,5-1-3" {
		t.Errorf("set %q", got)
	}
	s.Add(GTID{Domain: 0, Server: 2, Seq: 11})
	if got := s.String(); got != "0-2-12,0-1-13,5-1-3" {
		t.Errorf("an old transaction changed the set: %q", got)
	}
	a, b := mustSet(t, "0-1-10,1-1-1"), mustSet(t, "0-2-12,0-1-9,2-1-4")
	if got := a.Union(b).String(); got != "0-2-12,0-1-10,1-1-1,2-1-4" || !b.Union(a).Equal(a.Union(b)) {
		t.Errorf("union %q", got)
	}
	if got := a.Subtract(b).String(); got != "0-1-10,1-1-1" {
		t.Errorf("subtract %q", got)
	}
	if !a.Union(b).ContainsSet(a) || a.ContainsSet(b) {
		t.Error("ContainsSet is wrong")
	}
	if mustSet(t, "0-1-5,0-2-6").Equal(mustSet(t, "0-2-6,0-1-5")) {
		t.Error("sets with another last server are equal")
	}
}

// mariaLog is the naive model of MariaDB's GTIDs: a log with some domains, in each of which servers take turns.
func mariaLog(r *rand.Rand) (log []GTID) {
	var seq [3]uint64
	var server [3]uint32
	for range 60 {
		d := r.IntN(len(seq))
		if server[d] == 0 || r.IntN(6) == 0 {
			server[d] = 1 + r.Uint32N(3)
		}
		seq[d] += 1 + r.Uint64N(2) // with gaps
		log = append(log, GTID{Domain: uint32(d), Server: server[d], Seq: seq[d]})
	}
	return log
}

// TestGTIDSetMariaDBAlgebra holds MariaDB's sets against a model that keeps each transaction by itself: sets of places in one log,
// where each domain may stand elsewhere.
func TestGTIDSetMariaDBAlgebra(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		log := mariaLog(r)
		place := func() (s GTIDSet, in map[GTID]bool) {
			in = map[GTID]bool{}
			var end [3]int
			for d := range end {
				end[d] = r.IntN(len(log) + 1)
			}
			for i, g := range log {
				if i < end[g.Domain] {
					s.Add(g)
					in[g] = true
				}
			}
			return s, in
		}
		a, ma := place()
		b, mb := place()
		all := true
		for name, c := range map[string]struct {
			set  GTIDSet
			want func(g GTID) bool
		}{
			"add":       {a, func(g GTID) bool { return ma[g] }},
			"union":     {a.Union(b), func(g GTID) bool { return ma[g] || mb[g] }},
			"intersect": {a.Intersect(b), func(g GTID) bool { return ma[g] && mb[g] }},
		} {
			var want GTIDSet
			for _, g := range log {
				if c.set.Contains(g) != c.want(g) {
					t.Fatalf("%s: %v contained = %t in %v, of %v and %v", name, g, !c.want(g), c.set, a, b)
				}
				if c.want(g) {
					want.Add(g)
				}
			}
			if !c.set.Equal(want) || c.set.ConnectState() != want.ConnectState() {
				t.Fatalf("%s: %v, a replica that read it would have %v", name, c.set, want)
			}
			if back, err := ParseGTIDSet(c.set.String()); err != nil || !back.Equal(c.set) || back.ConnectState() != c.set.ConnectState() {
				t.Fatalf("%s: text round trip: %v, %v", name, back, err)
			}
		}
		for g := range mb {
			all = all && ma[g]
		}
		if a.ContainsSet(b) != all || a.ContainsSet(b) != a.Intersect(b).Equal(b) {
			t.Fatalf("ContainsSet: %v, %v", a, b)
		}
	}
	for _, c := range []struct {
		s, o string
		want bool
	}{{"0-1-5", "0-1-6", true}, {"0-1-5", "0-2-6", true}, {"0-1-5", "0-2-5", false}, {"0-1-5,1-1-1", "0-1-4,1-1-2", true}, {"0-1-5", "1-1-9", false}, {"0-2-9,0-1-5", "0-1-6", true}} {
		if got := mustSet(t, c.s).Behind(mustSet(t, c.o)); got != c.want {
			t.Errorf("%s behind %s: %t", c.s, c.o, got)
		}
	}
	// Places of two histories: what follows the lower number is read again.
	a, b := mustSet(t, "0-1-10,0-2-12,1-1-5"), mustSet(t, "0-2-11,0-1-15,2-1-1")
	if both := a.Intersect(b); both.String() != "0-2-11,0-1-10" || both.ConnectState() != "0-1-10" || !b.Intersect(a).Equal(both) {
		t.Errorf("%v", both)
	}
}

// Encodings as MySQL 9 writes them in its PREVIOUS_GTIDS event.
func TestDecodeGTIDSet(t *testing.T) {
	id := "\x3e\x11\xfa\x47\x71\xca\x11\xe1\x9e\x33\xc8\x0a\xa9\x42\x95\x62"
	for _, c := range []struct{ in, want string }{
		{"\x00\x00\x00\x00\x00\x00\x00\x00", ""},
		{"\x01\x00\x00\x00\x00\x00\x00\x00" + id + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x06\x00\x00\x00\x00\x00\x00\x00", uuidA + ":1-5"},
		{"\x01\x02\x00\x00\x00\x00\x00\x01" + id + "\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x06\x00\x00\x00\x00\x00\x00\x00" +
			id + "\x08blue" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x07\x00\x00\x00\x00\x00\x00\x00" + "\x08\x00\x00\x00\x00\x00\x00\x00", uuidA + ":1-5:blue:7"},
	} {
		s, err := DecodeGTIDSet([]byte(c.in))
		if err != nil || s.String() != c.want {
			t.Errorf("%x: %q, %v; want %q", c.in, s, err, c.want)
		}
		if b, _ := s.AppendBinary(nil); string(b) != c.in {
			t.Errorf("%q: encoded as %x, want %x", c.want, b, c.in)
		}
		for i := range len(c.in) {
			if s, err := DecodeGTIDSet([]byte(c.in[:i])); err == nil {
				t.Errorf("%q cut to %d bytes gives %q", c.want, i, s)
			}
		}
	}
}

func TestGTIDSetAddAllocates(t *testing.T) {
	m := mustSet(t, uuidA+":1-5:blue:1,"+uuidB+":7")
	g, _ := ParseGTID(uuidA + ":5")
	r := mustSet(t, "0-1-1,0-2-2,1-1-1")
	d := GTID{Server: 1, Seq: 3}
	if n := testing.AllocsPerRun(100, func() {
		g.Seq++
		m.Add(g)
		d.Seq++
		d.Server = 3 - d.Server
		r.Add(d)
	}); n != 0 {
		t.Errorf("%v allocations a transaction", n)
	}
}

func FuzzParseGTIDSet(f *testing.F) {
	for _, s := range []string{"", uuidA + ":1-5:7:blue:1-3," + uuidB + ":1", "0-1-7,0-2-9,1-1-3", uuidA + ":1,0-1-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseGTIDSet(in)
		if err != nil {
			return
		}
		back, err := ParseGTIDSet(s.String())
		if err != nil || !back.Equal(s) || back.String() != s.String() {
			t.Fatalf("%q: %q, then %q, %v", in, s, back, err)
		}
		if !s.Union(s).Equal(s) || !s.Subtract(s).IsEmpty() || !s.Intersect(s).Equal(s) {
			t.Fatalf("%q: algebra", in)
		}
	})
}

func FuzzDecodeGTIDSet(f *testing.F) {
	for _, s := range []string{"", uuidA + ":1-5:7:blue:1-3," + uuidB + ":1"} {
		b, _ := mustSet(f, s).AppendBinary(nil)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := DecodeGTIDSet(in)
		if err != nil {
			return
		}
		b, _ := s.AppendBinary(nil)
		back, err := DecodeGTIDSet(b)
		if err != nil || !back.Equal(s) {
			t.Fatalf("%x: %v, then %v, %v", in, s, back, err)
		}
	})
}

func BenchmarkGTIDSetAdd(b *testing.B) {
	for _, sids := range []int{1, 50} {
		b.Run(fmt.Sprintf("uuids=%d", sids), func(b *testing.B) {
			var s GTIDSet
			for i := range sids {
				s.Add(GTID{SID: [16]byte{byte(i)}, Seq: 1})
			}
			g := GTID{SID: [16]byte{byte(sids / 2)}, Seq: 1}
			b.ReportAllocs()
			for b.Loop() {
				g.Seq++
				s.Add(g)
			}
		})
	}
}
