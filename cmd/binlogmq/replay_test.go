package main

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/bridge"
	"github.com/binlogmq/binlogmq/config"
	"github.com/binlogmq/binlogmq/event"
)

// TestGateEndsAllReadersAtOnePlace: whenever it is closed, every reader ends behind the same transaction.
func TestGateEndsAllReadersAtOnePlace(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var log []*event.Event
		var ends []int64
		ord := int64(0)
		for range 12 {
			log = append(log, &event.Event{Kind: event.Begin})
			for range rng.IntN(4) {
				rows := 1 + rng.IntN(3)
				log = append(log, &event.Event{Kind: event.Rows, Ordinal: ord + 1, Rows: uint32(rows)})
				ord += int64(rows)
			}
			ord++
			log = append(log, &event.Event{Kind: event.End, Ordinal: ord})
			ends = append(ends, ord)
		}
		type reader struct {
			at    int
			last  int64
			ended bool
		}
		g := &gate{limit: -1}
		readers := make([]reader, 3)
		step := func(r *reader) {
			if r.ended || r.at == len(log) {
				return
			}
			n := min(len(log)-r.at, 1+rng.IntN(6))
			open, ended := g.pass(log[r.at:r.at+n], &r.last)
			r.at, r.ended = r.at+len(open), ended
		}
		closeAt := rng.IntN(20)
		for range closeAt {
			step(&readers[rng.IntN(3)])
		}
		least := int64(0)
		if rng.IntN(3) == 0 {
			least = ends[rng.IntN(6)]
		}
		limit := g.close(least)
		if g.close(1<<40) != limit {
			t.Fatal("the limit moves")
		}
		for range 400 {
			step(&readers[rng.IntN(3)])
		}
		want := int64(0)
		for _, e := range ends {
			if want == 0 && e >= limit {
				want = e
			}
		}
		if limit == 0 {
			want = 0
		}
		for i := range readers {
			if r := &readers[i]; r.last != want {
				t.Fatalf("seed %d: reader %d ends at %d, limit %d, want %d", seed, i, r.last, limit, want)
			}
		}
	}
}

// TestOtherwiseI5: numbers inside a transaction that another version counted are not taken for ours where they may differ.
func TestOtherwiseI5(t *testing.T) {
	_, why := bridge.ParseRecipe([]byte(`{"v":1,"rule":"1"}`))
	_, none := bridge.ParseRecipe(nil)
	for name, c := range map[string]struct {
		why     error
		cursor  event.Cursor
		pattern string
		want    bool
	}{
		"inside":               {why, event.Cursor{Progress: 3}, "Shop.*", true},
		"between transactions": {why, event.Cursor{}, "Shop.*", false},
		"no capitals":          {why, event.Cursor{Progress: 3}, "shop.*", false},
		"no recipe":            {none, event.Cursor{Progress: 3}, "Shop.*", false},
		"the same rule":        {nil, event.Cursor{Progress: 3}, "Shop.*", false},
	} {
		v := &saved{cursor: c.cursor, why: c.why}
		err := v.otherwise(&config.Destination{Tables: config.Strings{"b.*", c.pattern}})
		if (err != nil) != c.want || c.want && !strings.Contains(err.Error(), "run the version that sent it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFormerSink: the sink of a recipe is the configured one with the codec and the delivery of before.
func TestFormerSink(t *testing.T) {
	yes := true
	now := &config.Sink{Name: "out", Codec: "maxwell", TimeZone: "UTC", Kafka: &config.Kafka{Delivery: "transactional", Brokers: config.Strings{"b:9092"}},
		Maxwell: config.Maxwell{KeyFormat: "hash", Nulls: &yes, CommitInfo: &yes, Xoffset: &yes}}
	before := &config.Sink{Codec: "canal-json", TimeZone: "Europe/Berlin", CanalJSON: config.CanalJSON{Binary: "base64", Enum: "label"}}
	id, err := identify(before)
	if err != nil {
		t.Fatal(err)
	}
	// It is kept in cursors: it must not change by accident.
	if want := `{"name":"canal-json","time_zone":"Europe/Berlin","canal_json":{"Binary":"base64","Enum":"label"}}`; id != want {
		t.Errorf("identity %s, want %s", id, want)
	}
	got, err := formerSink(now, &bridge.Recipe{Codec: id, Delivery: "kafka sequenced"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Kafka.Delivery != "sequenced" || now.Kafka.Delivery != "transactional" || got.Codec != "canal-json" || got.TimeZone != "Europe/Berlin" || got.CanalJSON != before.CanalJSON || got.Kafka.Brokers[0] != "b:9092" {
		t.Errorf("%+v %+v", got, got.Kafka)
	}
	no := false
	before = &config.Sink{Codec: "debezium", TimeZone: "UTC", Definitions: &no, Debezium: config.Debezium{Prefix: "p", Schemas: &yes, Decimal: "precise", Time: "connect", BigintUnsigned: "long", Binary: "hex", Failure: "warn"}}
	dbz, err := identify(before)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"name":"debezium","time_zone":"UTC","debezium":{"Prefix":"p","Schemas":true,"Decimal":"precise","Time":"connect","BigintUnsigned":"long","Binary":"hex","Failure":"warn"}}`; dbz != want {
		t.Errorf("identity %s, want %s", dbz, want)
	}
	if got, err = formerSink(now, &bridge.Recipe{Codec: dbz, Delivery: "kafka sequenced"}); err != nil || !*got.Debezium.Schemas || got.Debezium.Binary != "hex" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := newCodec(got); err != nil {
		t.Error(err)
	}
	before.Definitions = &yes
	if dbz, err = identify(before); err != nil || !strings.HasSuffix(dbz, `},"ddl_definitions":true}`) {
		t.Errorf("identity %s (%v)", dbz, err)
	}
	if got, err = formerSink(now, &bridge.Recipe{Codec: dbz, Delivery: "kafka sequenced"}); err != nil || !*got.Definitions {
		t.Errorf("%+v, %v", got, err)
	}
	for _, r := range []*bridge.Recipe{
		{Codec: id, Delivery: "pulsar"},
		{Codec: `{"name":"debezium","time_zone":"UTC","twist":1}`, Delivery: "kafka sequenced"},
		{Codec: `canal-json "latin1"`, Delivery: "kafka sequenced"},
	} {
		if _, err := formerSink(now, r); !errors.Is(err, bridge.ErrRecipe) || !strings.Contains(err.Error(), "bridge: ") {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
