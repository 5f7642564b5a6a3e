package bridge

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/meta"
	"github.com/binlogmq/binlogmq/server"
)

// TestRecipeI5: a recipe says all that makes the fingerprint, so that options made of it send the same messages again.
func TestRecipeI5(t *testing.T) {
	for _, o := range []Options{
		testOptions(nil),
		testOptions(func(o *Options) {
			o.Delivery, o.CodecID, o.Tables, o.Filter, o.Topic, o.DDLTopic = "kafka sequenced", `{"name":"maxwell"}`, []string{"a.*", "!a.b"}, "a.c,a.d", "{table}", "ddl"
			o.Key, o.KeyColumns, o.KeyChange, o.Tombstones, o.AllVersions = TableKey, []KeyColumns{{[]string{"a.x"}, []string{"k", "l"}}}, UpdateKeyChange, true, true
		}),
		testOptions(func(o *Options) {
			o.Oversize, o.MaxMessageBytes, o.DeadLetterTopic, o.Headers = DeadLetterOversize, 1<<20, "dead", []string{"seq"}
		}),
		testOptions(func(o *Options) { o.Oversize, o.MaxMessageBytes, o.Headers = SplitOversize, 1000, []string{} }),
		testOptions(func(o *Options) { o.DDL = AllDDL }),
		testOptions(func(o *Options) { o.DDL, o.DDLTopic = AllDDL, "" }),
	} {
		st := &State{Epoch: 1}
		st.follow(o.recipe())
		r, err := ParseRecipe(st.Recipe)
		if err != nil {
			t.Fatal(err)
		}
		got := testOptions(nil)
		if plain := got.recipe(); r.Counts(plain) != (slices.Equal(o.Tables, got.Tables) && !o.AllVersions) || !r.Counts(o.recipe()) {
			t.Errorf("%s against %s", st.Recipe, plain.encode())
		}
		if err := r.Follow(&got); err != nil {
			t.Fatal(err)
		}
		if got.fingerprint() != o.fingerprint() || got.fingerprint() != st.Fingerprint {
			t.Errorf("%s: followed it becomes %s", st.Recipe, got.recipe().encode())
		}
	}
	// The text is kept in cursors: it must not change by accident.
	const want = `{"v":1,"rule":"2","delivery":"kafka sequenced","codec":"c","destination":"d","tables":["shop.*"],"topic":"t","key":"primary_key","key_change":"split"}`
	if got := string((&Options{Destination: "d", Delivery: "kafka sequenced", CodecID: "c", Tables: []string{"shop.*"}, Topic: "t"}).recipe().encode()); got != want {
		t.Errorf("recipe\n%s, want\n%s", got, want)
	}
	// The header tables, which came later, says nothing where no statement is published.
	for topic, same := range map[string]bool{"": true, "ddl": false} {
		former := testOptions(func(o *Options) {
			o.DDLTopic, o.Oversize, o.MaxMessageBytes, o.Headers = topic, SplitOversize, 1000, []string{"seq", "gtid", "row"}
		})
		now := former
		now.Headers = nil
		if got := former.fingerprint() == now.fingerprint(); got != same {
			t.Errorf("ddl_topic %q: the same fingerprint: %t", topic, got)
		}
	}
}

// TestRecipeOfRefusedPatternsI5: a recipe with patterns that no configuration may have any more is followed, and its bridge takes the tables that it took.
func TestRecipeOfRefusedPatternsI5(t *testing.T) {
	was := testOptions(func(o *Options) {
		o.Tables, o.Filter = []string{"*.*", `!shop\..*`, `!shop.order_\d`}, `shop.*,!sh\op.tmp`
		o.KeyColumns = []KeyColumns{{[]string{`shop\..*`}, []string{"k"}}}
	})
	r, err := ParseRecipe(was.recipe().encode())
	if err != nil {
		t.Fatal(err)
	}
	b := testBridge(t, func(o *Options) {
		if err := r.Follow(o); err != nil {
			t.Fatal(err)
		}
	})
	if b.Fingerprint() != was.fingerprint() {
		t.Errorf("it becomes %s", b.Recipe().encode())
	}
	for table, want := range map[string]bool{"orders": true, "order_d": false, "order_1": true, "tmp": false} {
		if got := b.c.takes("shop", table, false); got != want {
			t.Errorf("shop.%s: %v, want %v", table, got, want)
		}
	}
}

// TestRecipeRefusedI5: a recipe that is not understood whole is not followed.
func TestRecipeRefusedI5(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "older version",
		"x":                             "cannot be read",
		`{"v":2}`:                       "version 2",
		`{"v":1,"rule":"1"}`:            `rule "1"`,
		`{"v":1,"rule":"2","twist":1}`:  "cannot be read",
		`{"v":1,"rule":"2","key":"no"}`: `unknown value "no"`,
		`{"v":1,"rule":"2","key":"primary_key","key_change":"split","headers":["seq"]}`: "fingerprint",
	} {
		r, err := ParseRecipe([]byte(text))
		if err == nil {
			o := testOptions(nil)
			err = r.Follow(&o)
		}
		if !errors.Is(err, ErrRecipe) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}

func FuzzParseRecipe(f *testing.F) {
	o := testOptions(nil)
	f.Add(o.recipe().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRecipe(b)
		if err != nil {
			return
		}
		o := testOptions(nil)
		if err := r.Follow(&o); err == nil && o.fingerprint() != r.fingerprint() {
			t.Fatalf("%s is followed as %s", b, o.recipe().encode())
		}
	})
}

// savedState returns what the store holds of the test's subscription.
func savedState(t *testing.T, m meta.Store) (*State, event.Cursor) {
	t.Helper()
	r, err := m.Load(context.Background(), testID)
	if err != nil {
		t.Fatal(err)
	}
	st, err := ParseState(r.Cursor.State)
	if err != nil || st == nil {
		t.Fatal(st, err)
	}
	return st, r.Cursor
}

// TestStopRightBeforeTheChangeI1: a change that cannot be passed leaves the cursor right before it, wherever in a batch or an event that
// is, and the state says that nothing is stored behind. A later start sends nothing twice.
func TestStopRightBeforeTheChangeI1(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 5))
		h := randomHistory(t, rng, 60)
		bad := h.want[rng.IntN(len(h.want))].ordinal
		mem := new(meta.Memory)
		broker := newFaultSink(seed, 0)
		codec := &textCodec{fail: func(r *event.Row) error {
			if r.Ordinal == bad {
				return errors.New("cannot be written")
			}
			return nil
		}}
		var s *countSink
		stateful := seed%2 == 0
		start := func() *rig {
			if stateful {
				s = &countSink{faultSink: broker}
				return startRig(t, h, mem, func(o *Options) { o.Codec, o.Sink, o.BatchEvents = codec, s, 1+rng.IntN(40) })
			}
			return startRig(t, h, mem, func(o *Options) { o.Codec, o.Sink, o.BatchEvents = codec, broker, 1+rng.IntN(40) })
		}
		r := start()
		err := <-r.result
		r.result <- nil
		var stop *StopError
		isDDL := false
		for _, w := range h.want {
			isDDL = isDDL || w.ordinal == bad && strings.HasPrefix(w.value, "ddl")
		}
		if isDDL { // which the codec always writes
			continue
		}
		if !errors.As(err, &stop) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		st, c := savedState(t, mem)
		if !st.Clean {
			t.Errorf("seed %d: the state is not clean", seed)
		}
		last := int64(0)
		for _, m := range broker.log {
			last = max(last, m.seq-st.Offset)
		}
		if c.Last() < last || c.Last() >= bad {
			t.Errorf("seed %d: the cursor is at %d+%d, messages up to %d are stored and %d cannot be sent", seed, c.Ordinal, c.Progress, last, bad)
		}
		bad = 0
		r = start()
		r.wait(h.want[len(h.want)-1].ordinal)
		if st, _ := savedState(t, mem); st.Clean {
			t.Errorf("seed %d: the state is clean while the sink runs (I5)", seed)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if st, _ := savedState(t, mem); !st.Clean || st.Epoch != 1 && !stateful {
			t.Errorf("seed %d: after a stop in order: %+v", seed, st)
		}
		checkLog(t, h, broker, 3)
		if len(broker.log) != len(h.want) {
			t.Errorf("seed %d: %d messages are stored, want %d: some twice", seed, len(broker.log), len(h.want))
		}
		if err := broker.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// startRig is startStateful with other options.
func startRig(t testing.TB, h *history, m meta.Store, change func(*Options)) *rig {
	t.Helper()
	ctx := context.Background()
	r := &rig{t: t, result: make(chan error, 1)}
	r.server = server.New(server.Options{Meta: m, DestinationOptions: server.DestinationOptions{RingEvents: 64}})
	if err := r.server.AddDestination("d", h, server.DestinationOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.server.Subscribe(ctx, testID, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.server.Start(ctx, "d"); err != nil {
		t.Fatal(err)
	}
	r.bridge = testBridge(t, func(o *Options) {
		o.Client, o.DrainTimeout = r.server.Client(testID), patience
		change(o)
	})
	run, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	go func() { r.result <- r.bridge.Run(run) }()
	return r
}

// TestUpgradeAfterKillI5: numbers of a version that counts otherwise are not used again: after a kill the sink says what to run, after a stop in order it
// begins a new epoch.
func TestUpgradeAfterKillI5(t *testing.T) {
	h := randomHistory(t, rand.New(rand.NewPCG(3, 3)), 20)
	for _, clean := range []bool{false, true} {
		s := newFaultSink(1, 0)
		upgraded := func(o *Options) { o.Exact, o.Sink = true, s }
		former := testOptions(upgraded)
		recipe := former.recipe()
		recipe.Rule = "1"
		st := &State{Version: stateVersion, Epoch: 1}
		st.follow(recipe)
		st.Clean = clean
		text, err := st.Encode()
		if err != nil {
			t.Fatal(err)
		}
		disk := &meta.Memory{}
		if err := disk.Save(context.Background(), testID, &meta.Record{Cursor: event.Cursor{Position: event.Position{File: "log.1", Offset: 4, ServerUUID: "u"}, State: text}}); err != nil {
			t.Fatal(err)
		}
		r := startRig(t, h, disk, upgraded)
		if clean {
			r.wait(h.want[len(h.want)-1].ordinal)
			if now := r.bridge.Status(); now.Epoch != 2 {
				t.Errorf("epoch %d, want 2", now.Epoch)
			}
		} else {
			err := <-r.result
			r.result <- nil
			var stop *StopError
			if !errors.As(err, &stop) || !errors.Is(err, ErrUnfinished) || !errors.Is(err, ErrRule) || !strings.Contains(err.Error(), "and the version, that sent them") {
				t.Errorf("after a kill: %v", err)
			}
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if len(s.log) > 0 != clean {
			t.Errorf("clean %t: %d messages were sent", clean, len(s.log))
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
