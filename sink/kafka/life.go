package kafka

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
)

// life is the sink's identity towards a cluster in sequenced delivery. It is made once, saved before it is
// used, and taken up again with the same epoch by every restart: not the epoch keeps a second process
// from writing, but the sequence does, which belongs to the message.
type life struct {
	cluster                       string // Kafka's cluster id; the producer id means nothing elsewhere
	deployment, destination, sink string
	producerID                    int64
	epoch                         int16
}

// stateVersion is the version of the layout of a book's encoding.
const stateVersion = 1

// counter is what is known of one partition in a life. Its fields are guarded by the book's mu.
type counter struct {
	// acked messages are acknowledged: the number of the first one that a new session sends.
	acked int64
	// Message n >= acked lies at offset n+lag or above: exactly there while nobody else writes.
	lag int64
	// shared: somebody else has written to the partition since the life began.
	shared bool
	// spans tell lag of messages that are stored and not acknowledged yet, by number.
	spans []span
}

// span says that message n >= first, up to the next span, lies at n+lag or above.
type span struct{ first, lag int64 }

// account holds the counters of a topic, by partition. Their number is that of
// the topic when the life first used it (I5).
type account struct {
	topic    string
	counters []counter
}

// run is a number of messages that were published one after the other to one partition.
type run struct {
	c *counter
	n int64
}

// book numbers the messages of a life: what is acknowledged is what a cursor
// saves (I2). All methods may be called from any goroutine.
type book struct {
	mu       sync.Mutex
	life     life
	accounts []*account // by topic
	byTopic  map[string]*account

	runs   []run // published and not acknowledged; runs[head:] are in use
	head   int
	total  int64 // mark of everything published
	marked int64 // mark acknowledged
}

// begin makes the book that of a life with these accounts.
func (b *book) begin(l life, accounts []*account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.life, b.accounts = l, accounts
	b.byTopic = make(map[string]*account, len(accounts))
	for _, a := range accounts {
		b.byTopic[a.topic] = a
	}
	b.forget()
}

// identity returns the life.
func (b *book) identity() life {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.life
}

// account returns a topic's counters, or nil if the life has not used it.
func (b *book) account(topic string) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byTopic[topic]
}

// open enters a topic, of whose partitions it knows where ours begin.
func (b *book) open(topic string, begins []counter) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.byTopic[topic]; a != nil {
		return a
	}
	a := &account{topic: topic, counters: begins}
	i, _ := slices.BinarySearchFunc(b.accounts, topic, func(a *account, t string) int { return cmp.Compare(a.topic, t) })
	b.accounts = slices.Insert(b.accounts, i, a)
	b.byTopic[topic] = a
	return a
}

// forget drops what is published and not acknowledged: a new session publishes it again.
func (b *book) forget() {
	clear(b.runs)
	b.runs, b.head = b.runs[:0], 0
	b.marked = b.total
}

// restart is forget for a new session.
func (b *book) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
}

// start returns where a new session begins with a partition.
func (b *book) start(c *counter) (number, lag int64, shared bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.spans = c.spans[:0]
	return c.acked, c.lag, c.shared
}

// publish notes what was published, in order.
func (b *book) publish(runs []run) {
	if len(runs) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.head > 1024 && b.head > len(b.runs)/2 {
		n := copy(b.runs, b.runs[b.head:])
		clear(b.runs[n:])
		b.runs, b.head = b.runs[:n], 0
	}
	for _, r := range runs {
		b.total += r.n
	}
	b.runs = append(b.runs, runs...)
}

// mark returns the mark of everything published.
func (b *book) mark() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

// acknowledge moves the counters up to the mark.
func (b *book) acknowledge(mark int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.marked < mark && b.head < len(b.runs) {
		r := &b.runs[b.head]
		n := min(r.n, mark-b.marked)
		b.marked += n
		r.c.acked += n
		r.c.settle()
		if r.n -= n; r.n > 0 {
			continue
		}
		r.c = nil
		b.head++
	}
	if b.head == len(b.runs) {
		b.runs, b.head = b.runs[:0], 0
	}
}

// stored notes where messages from number first on lie. Numbers rise within a session.
func (b *book) stored(c *counter, first, lag int64, shared bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.shared = c.shared || shared
	last := c.lag
	if n := len(c.spans); n > 0 {
		last = c.spans[n-1].lag
	}
	if lag > last {
		c.spans = append(c.spans, span{first, lag})
		c.settle()
	}
}

// settle takes over what the spans say of the next message. Caller holds the book's mu.
func (c *counter) settle() {
	i := 0
	for i < len(c.spans) && c.spans[i].first <= c.acked {
		c.lag = c.spans[i].lag
		i++
	}
	if i > 0 {
		c.spans = slices.Delete(c.spans, 0, i)
	}
}

// append appends the life and what is acknowledged in it.
func (b *book) append(dst []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	dst = append(dst, stateVersion)
	for _, s := range []string{b.life.cluster, b.life.deployment, b.life.destination, b.life.sink} {
		dst = appendText(dst, s)
	}
	dst = binary.AppendUvarint(dst, uint64(b.life.producerID))
	dst = binary.AppendUvarint(dst, uint64(b.life.epoch))
	dst = binary.AppendUvarint(dst, uint64(len(b.accounts)))
	for _, a := range b.accounts {
		dst = appendText(dst, a.topic)
		dst = binary.AppendUvarint(dst, uint64(len(a.counters)))
		for i := range a.counters {
			c := &a.counters[i]
			dst = binary.AppendUvarint(dst, uint64(c.acked))
			flags := uint64(c.lag) << 1
			if c.shared {
				flags |= 1
			}
			dst = binary.AppendUvarint(dst, flags)
		}
	}
	return dst
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

var errState = errors.New("kafka: the sink's state in the cursor is damaged")

// parseState reads what append wrote.
func parseState(b []byte) (life, []*account, error) {
	fail := func(format string, args ...any) (life, []*account, error) {
		return life{}, nil, fmt.Errorf("%w: %s", errState, fmt.Sprintf(format, args...))
	}
	if len(b) == 0 {
		return fail("it is empty")
	}
	if b[0] != stateVersion {
		return life{}, nil, fmt.Errorf("kafka: the sink's state in the cursor has version %d, this program knows version %d", b[0], stateVersion)
	}
	r := stateReader{b: b[1:]}
	l := life{cluster: r.text(), deployment: r.text(), destination: r.text(), sink: r.text()}
	l.producerID, l.epoch = int64(r.number(math.MaxInt64)), int16(r.number(math.MaxInt16))
	n := r.number(uint64(len(r.b)))
	accounts := make([]*account, 0, min(n, 1<<16))
	last := ""
	for range n {
		a := &account{topic: r.text()}
		parts := r.number(uint64(len(r.b) / 2))
		if r.bad || a.topic <= last || parts == 0 {
			return fail("topic %q with %d partitions", a.topic, parts)
		}
		last = a.topic
		a.counters = make([]counter, parts)
		for i := range a.counters {
			acked, flags := r.number(math.MaxInt64), r.number(math.MaxUint64)
			a.counters[i] = counter{acked: int64(acked), lag: int64(flags >> 1), shared: flags&1 == 1}
			if a.counters[i].lag > math.MaxInt64-a.counters[i].acked {
				r.bad = true
			}
		}
		accounts = append(accounts, a)
	}
	if r.bad || len(r.b) > 0 {
		return fail("it ends too early or too late")
	}
	return l, accounts, nil
}

// stateReader takes fields off an encoded state. After the first fault every field is zero.
type stateReader struct {
	b   []byte
	bad bool
}

func (r *stateReader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most || r.bad {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *stateReader) text() string {
	n := r.number(uint64(len(r.b)))
	if r.bad || n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// Describe writes for people what a sink's state says: the life, and what is acknowledged in it. The state is one that
// AppendState made in sequenced delivery.
func Describe(state []byte) (string, error) {
	l, accounts, err := parseState(state)
	if err != nil {
		return "", err
	}
	partitions, messages := 0, int64(0)
	for _, a := range accounts {
		partitions += len(a.counters)
		for i := range a.counters {
			messages += a.counters[i].acked
		}
	}
	return fmt.Sprintf("cluster %s, %s/%s/%s, producer id %d, epoch %d: %d messages acknowledged in %d partitions of %d topics",
		l.cluster, l.deployment, l.destination, l.sink, l.producerID, l.epoch, messages, partitions, len(accounts)), nil
}
