package kafka

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestStateGolden(t *testing.T) {
	b := &book{}
	b.begin(life{"cluster", "prod", "shop", "orders", 1 << 40, 3}, nil)
	z := b.open("zebra", []counter{{}, {lag: 1000}})
	a := b.open("apple", []counter{{lag: 7}})
	b.publish([]run{{&a.counters[0], 300}, {&z.counters[1], 2}, {&a.counters[0], 5}})
	b.stored(&z.counters[1], 0, 1010, true)
	b.acknowledge(301)
	const want = "01" + "07636c7573746572" + "0470726f64" + "0473686f70" + "066f7264657273" + "808080808020" + "03" + "02" +
		"056170706c65" + "01" + "ac02" + "0e" + // 300 messages, the first at offset 7
		"057a65627261" + "02" + "00" + "00" + "01" + "e50f" // 1 message, shared
	got := b.append(nil)
	if hex.EncodeToString(got) != want {
		t.Fatalf("state %x\nwant  %s", got, want)
	}
	l, accounts, err := parseState(got)
	if err != nil || l != b.life || len(accounts) != 2 {
		t.Fatal(l, accounts, err)
	}
	c := &book{}
	c.begin(l, accounts)
	if !bytes.Equal(c.append(nil), got) {
		t.Error("what is read differs from what was written")
	}
	if !reflect.DeepEqual(accounts[1].counters, []counter{{}, {acked: 1, lag: 1010, shared: true}}) {
		t.Errorf("%+v", accounts[1].counters)
	}
	for n := range len(got) {
		if _, _, err := parseState(got[:n]); err == nil {
			t.Errorf("the first %d bytes pass", n)
		}
	}
	if _, _, err := parseState(append(got, 0)); err == nil {
		t.Error("a byte too many passes")
	}
}

func FuzzParseState(f *testing.F) {
	b := &book{}
	b.begin(life{"c", "d", "e", "f", 5, 3}, nil)
	b.open("t", []counter{{lag: 1}, {lag: 2}, {lag: 3}})
	f.Add(b.append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, accounts, err := parseState(data)
		if err != nil {
			return
		}
		b := &book{}
		b.begin(l, accounts)
		again := b.append(nil)
		if l2, _, err := parseState(again); err != nil || l2 != l {
			t.Fatalf("%x becomes %x: %v", data, again, err)
		}
	})
}

// I2: at any mark the book's counters are those of exactly the messages before it.
func TestBookIsThatOfThePrefix(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := &book{}
	b.begin(life{}, nil)
	const lanes = 7
	a := b.open("t", make([]counter, lanes))
	var order []int // lane of each message
	type at struct {
		mark  int64
		total int
	}
	var marks []at
	done := 0
	for range 2000 {
		switch rnd.IntN(4) {
		case 0, 1:
			var runs []run
			for range rnd.IntN(5) {
				l, n := rnd.IntN(lanes), 1+rnd.IntN(4)
				runs = append(runs, run{&a.counters[l], int64(n)})
				for range n {
					order = append(order, l)
				}
			}
			b.publish(runs)
			marks = append(marks, at{b.mark(), len(order)})
		case 2:
			if len(marks) > 0 {
				b.acknowledge(marks[0].mark)
				done = marks[0].total
				marks = marks[1:]
			}
		case 3:
			if rnd.IntN(10) == 0 { // a new session: what is not acknowledged is published again
				b.restart()
				order, marks = order[:done], nil
			}
		}
		var want [lanes]int64
		for _, l := range order[:done] {
			want[l]++
		}
		for l := range want {
			if a.counters[l].acked != want[l] {
				t.Fatalf("lane %d has %d, want %d", l, a.counters[l].acked, want[l])
			}
		}
	}
}

func BenchmarkState(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		bk := &book{}
		bk.begin(life{"cluster", "prod", "shop", "orders", 1 << 40, 3}, nil)
		const parts = 100
		for i := range n / parts {
			a := bk.open(fmt.Sprintf("shop.table_%04d", i), make([]counter, parts))
			for j := range a.counters {
				a.counters[j].acked, a.counters[j].lag = int64(i*1000+j*37), int64(j)
			}
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var buf []byte
			for b.Loop() {
				buf = bk.append(buf[:0])
			}
			b.ReportMetric(float64(len(buf)), "bytes")
		})
	}
}
