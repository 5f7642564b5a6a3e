package consume

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/test/workload"
)

// longest bounds a whole reading by a Java client.
const longest = 30 * time.Minute

// Lanes are what a consumer has found in each partition: how many messages, and a hash over all of them in order. The key is
// TOPIC/PARTITION.
type Lanes map[string]Lane

// Lane is one partition's messages.
type Lane struct {
	Messages int64
	Hash     [sha256.Size]byte
}

// Add takes the next message of its partition: key, value and headers count.
func (l Lanes) Add(m workload.Message) {
	name := fmt.Sprintf("%s/%d", m.Topic, m.Partition)
	lane := l[name]
	lane.Messages++
	h := sha256.New()
	h.Write(lane.Hash[:])
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	part(m.Key)
	part(m.Value)
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		part([]byte(name))
		part([]byte(m.Headers[name]))
	}
	h.Sum(lane.Hash[:0])
	l[name] = lane
}

// Messages is the number of messages in all partitions.
func (l Lanes) Messages() (n int64) {
	for _, lane := range l {
		n += lane.Messages
	}
	return n
}

// Topics returns the names of the topics that hold something.
func (l Lanes) Topics() []string {
	var out []string
	for name := range l {
		out = append(out, name[:strings.LastIndexByte(name, '/')])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Compare tells the first partition in which another consumer has found something else.
func (l Lanes) Compare(other Lanes) error {
	all := map[string]bool{}
	for name := range l {
		all[name] = true
	}
	for name := range other {
		all[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch a, b := l[name], other[name]; {
		case a.Messages != b.Messages:
			return fmt.Errorf("%s: %d messages for one consumer, %d for the other", name, a.Messages, b.Messages)
		case a != b:
			return fmt.Errorf("%s: %d messages for both consumers, but other ones or in another order", name, a.Messages)
		}
	}
	return nil
}

// KafkaByJava reads topics to their ends with Kafka's own consumer, read_committed. The test must run in a folder beside
// that of the compatibility tests, whose programs it runs.
func KafkaByJava(t testing.TB, bootstrap []string, topics []string) Lanes {
	t.Helper()
	return byJava(t, testenv.KafkaClients, "KafkaReader", append([]string{strings.Join(bootstrap, ","), "read_committed"}, topics...))
}

// PulsarByJava reads topics to their ends with Pulsar's own reader, as [KafkaByJava] does.
func PulsarByJava(t testing.TB, url string, topics []string) Lanes {
	t.Helper()
	return byJava(t, testenv.PulsarClient, "PulsarReader", append([]string{url}, topics...))
}

func byJava(t testing.TB, library, program string, args []string) Lanes {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	cmd := testenv.Java(t, ctx, []string{library}, "../compat/java/"+program+".java", args...)
	cmd.Env = append(os.Environ(), "LANES=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	lanes := Lanes{}
	lines := bufio.NewScanner(out)
	for lines.Scan() && err == nil {
		var l struct {
			Topic     string
			Partition int32
			Messages  int64
			Hash      []byte
		}
		if err = json.Unmarshal(lines.Bytes(), &l); err == nil && len(l.Hash) != sha256.Size {
			err = fmt.Errorf("no hash in %s", lines.Bytes())
		}
		if err == nil {
			lanes[fmt.Sprintf("%s/%d", l.Topic, l.Partition)] = Lane{l.Messages, [sha256.Size]byte(l.Hash)}
		}
	}
	if err == nil {
		err = lines.Err()
	}
	if err != nil {
		cancel()
	}
	if ended := cmd.Wait(); err == nil {
		err = ended
	}
	if err != nil {
		t.Fatalf("%s: %v\n%.4000s", program, err, &errs)
	}
	t.Logf("%s: %d messages for %.1f s of CPU", program, lanes.Messages(), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	return lanes
}
