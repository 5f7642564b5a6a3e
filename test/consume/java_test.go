package consume

import (
	"slices"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/test/workload"
)

// Two consumers that have not found the same are told apart.
func TestLanesDiffer(t *testing.T) {
	message := func(topic string, partition int32, value string) workload.Message {
		return workload.Message{Topic: topic, Partition: partition, Key: []byte("k"), Value: []byte(value), Headers: map[string]string{"seq": "1", "row": "2"}}
	}
	a, b := message("t", 0, "a"), message("t", 0, "b")
	headers := message("t", 0, "b")
	headers.Headers = map[string]string{"seq": "1", "row": "3"}
	shifted := message("t", 0, "")
	shifted.Key, shifted.Value = []byte("kb"), nil
	for name, c := range map[string]struct {
		other []workload.Message
		want  string
	}{
		"the same":       {[]workload.Message{a, b}, ""},
		"order":          {[]workload.Message{b, a}, "t/0: 2 messages for both consumers"},
		"one less":       {[]workload.Message{a}, "t/0: 2 messages for one consumer, 1"},
		"one twice":      {[]workload.Message{a, b, b}, "t/0: 2 messages for one consumer, 3"},
		"partition":      {[]workload.Message{a, b, message("t", 1, "c")}, "t/1: 0 messages"},
		"topic":          {[]workload.Message{a, b, message("u", 0, "c")}, "u/0: 0 messages"},
		"header":         {[]workload.Message{a, headers}, "t/0: 2 messages for both"},
		"key and value":  {[]workload.Message{a, shifted}, "t/0: 2 messages for both"},
		"nothing at all": {nil, "t/0: 2 messages for one consumer, 0"},
	} {
		one, two := Lanes{}, Lanes{}
		one.Add(a)
		one.Add(b)
		for _, m := range c.other {
			two.Add(m)
		}
		switch err := one.Compare(two); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	l := Lanes{}
	l.Add(a)
	l.Add(message("t", 3, "x"))
	l.Add(message("u/v", 0, "x"))
	if got := l.Topics(); !slices.Equal(got, []string{"t", "u/v"}) || l.Messages() != 3 {
		t.Error(got, l.Messages())
	}
}
