package bridge

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestStateRoundTrip(t *testing.T) {
	for _, s := range []*State{
		{Version: 2, Epoch: 1, Fingerprint: "ab"},
		{Version: 2, Epoch: 7, Offset: 3 << 32, Fingerprint: "ab", Partitions: map[string]int32{"a": 3, "b": 0}, Sink: []byte("\x01lanes\xff")},
		{Version: 2, Epoch: 7, Fingerprint: "ab", Recipe: []byte(`{"v":1}`), Clean: true},
	} {
		b, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseState(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, s) {
			t.Errorf("got %+v, want %+v", got, s)
		}
	}
	with := &State{Version: 2, Epoch: 7, Fingerprint: "ab", Partitions: map[string]int32{"a": 3}}
	text, err := with.Encode()
	if err != nil {
		t.Fatal(err)
	}
	with.Sink = []byte{0, 1, 2, 250}
	want, err := with.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got := appendState(nil, text, with.Sink); string(got) != string(want) {
		t.Errorf("with the sink's state %s, want %s", got, want)
	}
	if s, err := ParseState(nil); s != nil || err != nil {
		t.Errorf("no state: %v, %v", s, err)
	}
}

// TestStateRefusedI3: a state that cannot be understood is never taken for none.
func TestStateRefusedI3(t *testing.T) {
	for text, want := range map[string]string{
		"x":                      "cannot be read",
		`{"v":3,"later":"form"}`: "version 3",
		`{}`:                     "version 0",
		`{"v":1}`:                "damaged",
		`{"v":1,"epoch":1,"offset":-1,"fingerprint":"a"}`:      "damaged",
		`{"v":1,"epoch":1,"fingerprint":"a","unknown":true}`:   "cannot be read",
		`{"v":1,"epoch":1,"fingerprint":"a","partitions":[1]}`: "cannot be read",
	} {
		if s, err := ParseState([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want an error with %q", text, s, err, want)
		}
	}
}

func FuzzParseState(f *testing.F) {
	f.Add([]byte(`{"v":1,"epoch":1,"offset":4294967296,"fingerprint":"a","partitions":{"t":3},"sink":"AQID"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseState(b)
		if err != nil || s == nil {
			return
		}
		out, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseState(out); err != nil || again.Offset != s.Offset || again.Epoch != s.Epoch {
			t.Fatalf("%s becomes %s: %v", b, out, err)
		}
	})
}

// TestFingerprintI5: whatever decides which messages a row yields, their numbers and
// their places changes the fingerprint, and nothing else does.
func TestFingerprintI5(t *testing.T) {
	base := func() Options {
		return Options{Destination: "d", Name: "s", Topic: "{schema}.{table}", CodecID: "canal-json", Tables: []string{"shop.*"}}
	}
	o := base()
	want := o.fingerprint()
	if len(want) != 32 {
		t.Errorf("fingerprint %q", want)
	}
	seen := map[string]string{want: "base"}
	for name, change := range map[string]func(*Options){
		"tables":       func(o *Options) { o.Tables = []string{"shop.*", "!shop.x"} },
		"more tables":  func(o *Options) { o.Tables = nil },
		"filter":       func(o *Options) { o.Filter = "shop.a" },
		"codec":        func(o *Options) { o.CodecID = "maxwell" },
		"topic":        func(o *Options) { o.Topic = "all" },
		"destination":  func(o *Options) { o.Destination = "e" },
		"ddl topic":    func(o *Options) { o.DDLTopic = "ddl" },
		"key":          func(o *Options) { o.Key = TableKey },
		"no key":       func(o *Options) { o.Key = NoKey },
		"key columns":  func(o *Options) { o.KeyColumns = []KeyColumns{{[]string{"a.b"}, []string{"c"}}} },
		"key columns2": func(o *Options) { o.KeyColumns = []KeyColumns{{[]string{"a.b", "c"}, nil}} },
		"key change":   func(o *Options) { o.KeyChange = UpdateKeyChange },
		"tombstones":   func(o *Options) { o.Tombstones = true },
	} {
		o := base()
		change(&o)
		f := o.fingerprint()
		if other, ok := seen[f]; ok {
			t.Errorf("%s: same fingerprint as %s", name, other)
		}
		seen[f] = name
	}
	o = base()
	o.Workers, o.WindowBytes, o.Headers, o.Name = 7, 1, []string{"seq"}, "other"
	if o.fingerprint() != want {
		t.Error("an option that decides nothing changes the fingerprint")
	}
}

func TestParseNames(t *testing.T) {
	for _, k := range []Key{PrimaryKey, TableKey, NoKey} {
		if got, err := ParseKey(k.String()); got != k || err != nil {
			t.Errorf("%v: %v, %v", k, got, err)
		}
	}
	for _, k := range []KeyChange{SplitKeyChange, UpdateKeyChange} {
		if got, err := ParseKeyChange(k.String()); got != k || err != nil {
			t.Errorf("%v: %v, %v", k, got, err)
		}
	}
	if _, err := ParseKey("primary"); err == nil || !strings.Contains(err.Error(), "primary_key, table, none") {
		t.Errorf("error %v does not list what is known", err)
	}
}

// TestNumbersOfANewLife proves I5 for a subscription whose cursor was lost: later lives begin above what
// earlier ones can have used.
func TestNumbersOfANewLife(t *testing.T) {
	if s := NewState(time.Time{}); s.Epoch != 1 || s.Offset != 0 {
		t.Errorf("zero time: %+v", s)
	}
	born := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	first, second := NewState(born), NewState(born.Add(time.Minute))
	if used := first.Offset + 60_000_000; second.Offset < used || second.Epoch <= first.Epoch {
		t.Errorf("a minute with 60 million changes from %+v reaches into %+v", first, second)
	}
	if far := NewState(born.AddDate(100, 0, 0)); far.Offset >= 1<<53-1<<40 {
		t.Errorf("in a hundred years the offset is %d, which leaves no room below 1<<53", far.Offset)
	}
	text, err := first.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := ParseState(text); err != nil || back.Offset != first.Offset {
		t.Errorf("%+v, %v", back, err)
	}
}
