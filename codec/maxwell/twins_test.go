package maxwell

import (
	"testing"

	"github.com/binlogmq/binlogmq/codec/codectest"
	"github.com/binlogmq/binlogmq/event"
)

func BenchmarkTexts(b *testing.B) {
	c, _ := New(Defaults())
	tab := &event.Table{Schema: "s", Name: "t", Columns: []event.Column{
		{Name: "a", Type: 3}, {Name: "e", Type: 15, Meta: 40, Charset: "latin1"}, {Name: "f", Type: 15, Meta: 40, Charset: "latin1"}, {Name: "t", Type: 19, Meta: 0}, {Name: "u", Type: 19, Meta: 0},
	}}
	if err := tab.Compile(); err != nil {
		b.Fatal(err)
	}
	r := codectest.Row(b, tab, nil, []codectest.Cell{codectest.V(codectest.Le(7, 4)), codectest.V([]byte("caf\xe9 au lait")), codectest.V([]byte("Springfield")), codectest.V(codectest.Be(0x800000+3<<12+4<<6+5, 3)), codectest.V(codectest.Be(0x800000+3<<12+4<<6+5, 3))})
	p := c.plans.Get(tab)
	b.ReportAllocs()
	var out []byte
	cpu := codectest.CPUTime()
	for b.Loop() {
		out = out[:0]
		for i := 1; i < 5; i++ {
			var err error
			if out, err = c.appendValue(out, &r.After[i], &p.columns[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64((codectest.CPUTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
	b.Log(string(out))
}
