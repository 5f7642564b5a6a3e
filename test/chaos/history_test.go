package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/test/workload"
)

// TestAuditIsNotBlind proves that each fault that the audit counts is counted.
func TestAuditIsNotBlind(t *testing.T) {
	h := newHistory()
	rec := func(op byte, id, tag int) record {
		return record{change{op, int64(tag)}, digest("counters", row{"id": fmt.Sprint(id), "tag": fmt.Sprint(tag)})}
	}
	h.settle([]record{rec('i', 1, 10), rec('u', 1, 20), rec('d', 1, 20), rec('i', 2, 30)}, true)
	h.settle([]record{rec('u', 2, 40), rec('d', 1, 20)}, false) // the delete was tried before it was committed
	msg := func(seq int, op string, id, tag int) workload.Message {
		return workload.Message{Topic: "t", Key: fmt.Append(nil, id), Headers: map[string]string{"seq": fmt.Sprint(seq)},
			Value: fmt.Appendf(nil, `{"database":"s","table":"counters","type":%q,"data":{"id":%d,"tag":%d}}`, op, id, tag)}
	}
	right := []workload.Message{msg(1, "insert", 1, 10), msg(2, "update", 1, 20), msg(3, "delete", 1, 20), msg(5, "insert", 2, 30)}
	other := msg(5, "insert", 3, 30)
	other.Key = []byte("2")
	tests := []struct {
		name    string
		repeats bool
		msgs    []workload.Message
		want    string // beside the zeros
	}{
		{"right", false, right, ""},
		{"lost", false, right[1:], "1 lost"},
		{"doubled", false, append(right[:4:4], right[3]), "1 doubled"},
		{"reordered", false, []workload.Message{right[1], right[0], right[2], right[3]}, "1 reordered 1 falling"},
		{"an update after the delete", false, []workload.Message{right[0], right[2], msg(3, "update", 1, 20), right[3]}, "1 reordered 1 falling"},
		{"rolled back", false, append(right[:4:4], msg(6, "update", 2, 40)), "1 uncommitted"},
		{"made up", false, append(right[:4:4], msg(6, "update", 2, 50)), "1 uncommitted"},
		{"other values", false, append(right[:3:3], other), "1 wrong"},
		{"numbers fall", false, []workload.Message{right[0], right[1], right[2], msg(1, "insert", 2, 30)}, "1 falling"},
		{"a replay where it is allowed", true, append(right[:4:4], right...), "4 doubled"},
	}
	for _, tt := range tests {
		a := newAudit(h, "maxwell", tt.repeats)
		for _, m := range tt.msgs {
			if err := a.Add(m); err != nil {
				t.Fatal(err)
			}
		}
		a.Finish()
		var got []string
		for _, c := range []struct {
			n    int64
			what string
		}{{a.Lost, "lost"}, {a.Doubled, "doubled"}, {a.Reordered, "reordered"}, {a.Uncommitted, "uncommitted"}, {a.Wrong, "wrong"}, {a.Falling, "falling"}} {
			if c.n != 0 {
				got = append(got, fmt.Sprint(c.n, " ", c.what))
			}
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s: counted %q, want %q", tt.name, text, tt.want)
		}
		if a.Clean() != (tt.want == "" || tt.repeats) {
			t.Errorf("%s: Clean is %v", tt.name, a.Clean())
		}
	}
	if err := newAudit(h, "maxwell", false).Add(workload.Message{Value: []byte("{")}); err == nil {
		t.Error("bytes that make no sense are taken")
	}
}
