package kafka

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/sink"
)

// cursorVersion is the version of the layout of a cursor record and of the state in the owner's cursor.
const cursorVersion = 1

// cursorRecord is the value of the record that goes with every Kafka transaction: how far the sink is committed. It is
// the truth; the state in the owner's cursor is a copy that lags behind.
type cursorRecord struct {
	Version    int    `json:"v"`
	Generation int64  `json:"generation"`         // of the numbering; a new one begins where the replay may not be the same
	Sequence   *int64 `json:"sequence,omitempty"` // of the last message committed; absent: none in this generation
	Sub        uint16 `json:"sub,omitempty"`
	Owner      string `json:"owner"` // the process that wrote it
	Time       int64  `json:"time"`  // milliseconds since 1970 UTC, for people
}

func (r *cursorRecord) mark() mark {
	if r.Sequence == nil {
		return mark{}
	}
	return mark{*r.Sequence, r.Sub, true}
}

// tenure is what the owner's cursor keeps of a sink with transactional delivery.
type tenure struct {
	Version     int    `json:"transactional"`
	Cluster     string `json:"cluster"` // Kafka's cluster id
	Deployment  string `json:"deployment"`
	Destination string `json:"destination"`
	Sink        string `json:"sink"`
	Generation  int64  `json:"generation"`
	Sequence    *int64 `json:"sequence,omitempty"` // of the last message acknowledged in this generation
	Sub         uint16 `json:"sub,omitempty"`
}

func (t *tenure) mark() mark {
	if t.Sequence == nil {
		return mark{}
	}
	return mark{*t.Sequence, t.Sub, true}
}

// isTenure tells the state of transactional delivery from that of another kind.
func isTenure(state []byte) bool { return len(state) > 0 && state[0] == '{' }

func parseTenure(state []byte) (tenure, error) {
	var t tenure
	if err := json.Unmarshal(state, &t); err != nil {
		return t, fmt.Errorf("%w: %w", errState, err)
	}
	if t.Version != cursorVersion {
		return t, fmt.Errorf("kafka: the sink's state in the cursor has version %d, this program knows version %d", t.Version, cursorVersion)
	}
	if t.Generation < 1 {
		return t, fmt.Errorf("%w: generation %d", errState, t.Generation)
	}
	return t, nil
}

// tally is the memory of a sink with transactional delivery, across its sessions. All methods may be called
// from any goroutine.
type tally struct {
	owner string // of this process, as cursor records name it

	mu      sync.Mutex
	tenure  tenure
	acked   mark // by the owner
	highest mark // of what is known to be committed in this generation
	claimed bool // this process has committed a cursor record
	taken   *takenOver

	total int64 // messages accepted
	last  mark  // the last of them
	marks []markAt
}

// markAt says which message a number of Mark stands for.
type markAt struct {
	n int64
	m mark
}

func newTally() *tally {
	var id [8]byte
	rand.Read(id[:]) //nolint:errcheck // cannot fail
	return &tally{owner: hex.EncodeToString(id[:])}
}

func (y *tally) accept(m mark) {
	y.mu.Lock()
	y.total, y.last = y.total+1, m
	y.mu.Unlock()
}

func (y *tally) mark() int64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	if n := len(y.marks); y.total > 0 && (n == 0 || y.marks[n-1].n < y.total) {
		y.marks = append(y.marks, markAt{y.total, y.last})
	}
	return y.total
}

func (y *tally) acknowledge(n int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	i := 0
	for ; i < len(y.marks) && y.marks[i].n <= n; i++ {
		y.acked = y.marks[i].m
	}
	y.marks = append(y.marks[:0], y.marks[i:]...)
}

func (y *tally) append(dst []byte) []byte {
	y.mu.Lock()
	t := y.tenure
	if y.acked.set {
		t.Sequence, t.Sub = &y.acked.sequence, y.acked.sub
	}
	b, err := json.Marshal(&t)
	y.mu.Unlock()
	if err != nil { // strings and numbers only
		panic(err)
	}
	return append(dst, b...)
}

// committed notes that the transaction with a record of m is committed.
func (y *tally) committed(m mark) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.claimed = true
	if m.set {
		y.highest = m
	}
}

// replayed returns a function that tells whether all that is committed by now is acknowledged.
func (y *tally) replayed() func() bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	target := y.highest
	return func() bool {
		y.mu.Lock()
		defer y.mu.Unlock()
		return !y.acked.less(target)
	}
}

// record makes the message that carries the cursor up to m.
func (y *tally) record(topic string, m mark) *sink.Message {
	y.mu.Lock()
	r := cursorRecord{Version: cursorVersion, Generation: y.tenure.Generation, Owner: y.owner, Time: time.Now().UnixMilli()}
	y.mu.Unlock()
	if m.set {
		r.Sequence, r.Sub = &m.sequence, m.sub
	}
	b, err := json.Marshal(&r)
	if err != nil {
		panic(err)
	}
	return &sink.Message{Topic: topic, Key: cursorKey, Value: b}
}

var cursorKey = []byte("cursor")

// transactionalID is "" with other kinds of delivery.
func (s *Sink) transactionalID() string {
	if s.tally == nil {
		return ""
	}
	return s.o.Deployment + "/" + s.o.Destination + "/" + s.o.Sink
}

// cursorTopic names the topic with the sink's cursor, its only partition.
func (s *Sink) cursorTopic() string {
	return "binlogmq." + s.o.Deployment + "." + s.o.Destination + "." + s.o.Sink + ".cursor"
}

// cursorConfigs are the settings that a cursor topic is created with: compacted soon, since it gets a record with every commit.
func cursorConfigs(of map[string]string) map[string]string {
	c := map[string]string{configCleanup: "compact", "segment.bytes": "16777216", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}
	if v, ok := of[configMinISR]; ok {
		c[configMinISR] = v
	}
	return c
}

// takenOver is the outcome of taking the transactional id over.
type takenOver struct {
	producerID int64
	epoch      int16
	cursor     cursorRecord
	found      bool // there is a cursor record
}

var (
	errUnstable = errors.New("a transaction on the cursor topic has not ended")

	// ErrHanging is a cause of a DeliveryError: a transaction that nobody ends.
	ErrHanging = errors.New("a transaction hangs: the last stable offset stays below the high watermark")
	// ErrNotAcknowledged is a cause of a DeliveryError.
	ErrNotAcknowledged = errors.New("messages are committed that the saved cursor does not tell of")
	// ErrFencedOut is a cause of a DeliveryError.
	ErrFencedOut = errors.New("another process has taken the sink over")
	// ErrCursorBehind is a cause of a DeliveryError.
	ErrCursorBehind = errors.New("the cursor in Kafka lies behind what was confirmed")
)

// takeOver fences whoever else publishes for the sink, then reads how far it has come (I7, I8). It
// repeats for as long as ctx allows.
func (s *Sink) takeOver(ctx context.Context, co *coordinator) (t *takenOver, err error) {
	if err := s.prepareCursorTopic(ctx); err != nil {
		return nil, err
	}
	t = &takenOver{}
	err = s.untilAnswered(ctx, "taking the transactional id over", func() error {
		for n := 0; ; n++ {
			t.producerID, t.epoch, err = co.init(ctx)
			// The predecessor's transaction is being ended, which takes a moment.
			if _, short := repeatable(err); !short || n == 100 || retry.Sleep(ctx, 5*time.Millisecond) != nil {
				return err
			}
		}
	})
	if err != nil {
		return nil, err
	}
	// Only now: what the predecessor had open has been committed or aborted.
	begin := time.Now()
	err = s.untilAnswered(ctx, "reading the cursor in Kafka", func() error {
		t.cursor, t.found, err = s.readCursor(ctx, true)
		if errors.Is(err, errUnstable) && time.Since(begin) >= s.o.disagreeAfter {
			return s.hanging(s.cursorTopic(), 0, err)
		}
		return err
	})
	return t, err
}

func (s *Sink) hanging(topic string, partition int32, why error) error {
	return &DeliveryError{Topic: topic, Partition: partition, Err: fmt.Errorf("%w: %w", ErrHanging, why),
		Remedy: "look with `kafka-transactions.sh --bootstrap-server " + s.o.Brokers[0] + " find-hanging --broker-id N`, then end it with `kafka-transactions.sh abort` (Kafka 4.3 and 4.4 forget the end of a " +
			"transaction when a partition has no leader: replication factor 3 and min.insync.replicas 2 prevent that; aborting drops rows that the broker had confirmed, so set the cursor back before them)"}
}

// prepareCursorTopic sees to it that the cursor topic is there and fit.
func (s *Sink) prepareCursorTopic(ctx context.Context) error {
	name := s.cursorTopic()
	t, err := s.topic(ctx, name)
	if err != nil {
		return err
	}
	if t.partitions != 1 {
		return &DeliveryError{Topic: name, Err: fmt.Errorf("the cursor topic has %d partitions, not 1", t.partitions), Remedy: "delete it, if no sink has used it, and let the sink create it"}
	}
	conf, err := s.describeTopic(ctx, name, configCleanup)
	if policy, ok := conf[configCleanup]; err == nil && ok && !strings.Contains(policy, "compact") || strings.Contains(conf[configCleanup], "delete") {
		return &DeliveryError{Topic: name, Err: fmt.Errorf("the cursor topic has cleanup.policy=%s, under which the cursor is deleted some day", policy),
			Remedy: "kafka-configs.sh --bootstrap-server " + s.o.Brokers[0] + " --alter --entity-type topics --entity-name " + name + " --add-config cleanup.policy=compact"}
	}
	return nil // what may not be described is taken on trust
}

// readCursor reads the last committed cursor record. stable says that nothing may be undecided.
func (s *Sink) readCursor(ctx context.Context, stable bool) (rec cursorRecord, found bool, err error) {
	name := s.cursorTopic()
	by, missing, err := s.leaders(ctx, map[string]int32{name: 1})
	if err != nil {
		return rec, false, err
	}
	if len(missing) > 0 {
		return rec, false, topicError(name, &Error{Code: codeUnknownTopic})
	}
	for addr := range by {
		err = s.atLeader(ctx, addr, func(c *conn) error {
			l := &partitionLog{ctx: ctx, c: c, timeout: s.o.RequestTimeout, topic: name}
			end, lso, err := stableOffset(ctx, c, partitionID{name, 0})
			switch {
			case err != nil:
				return topicError(name, err)
			case stable && lso < end:
				return fmt.Errorf("%w: last stable offset %d, high watermark %d", errUnstable, lso, end)
			}
			start, err := l.start()
			if err == nil {
				rec, found, err = searchCursor(l, start, lso)
			}
			if errors.Is(err, errNotReadable) {
				return &DeliveryError{Topic: name, Err: errors.New("the sink's user may not read its cursor topic"),
					Remedy: "kafka-acls.sh --bootstrap-server " + s.o.Brokers[0] + " --add --allow-principal User:NAME --operation Read --operation Write --topic " + name}
			}
			return err
		})
	}
	return rec, found, err
}

// stableOffset returns the high watermark and the last stable offset of a partition. What lies below the latter is decided.
func stableOffset(ctx context.Context, c *conn, id partitionID) (end, lso int64, err error) {
	var bad error
	take := func(to *int64) func(int, int64, int16) {
		return func(_ int, offset int64, code int16) {
			if *to = offset; code != codeNoError {
				bad = &Error{Code: code}
			}
		}
	}
	// In this order: the last stable offset of a quiet partition must not seem to lie below a watermark read later.
	err = errors.Join(c.offsets(ctx, readUncommitted, latestOffset, []partitionID{id}, take(&end)),
		c.offsets(ctx, readCommitted, latestOffset, []partitionID{id}, take(&lso)))
	return end, lso, errors.Join(err, bad)
}

// searchCursor finds the last committed record between two offsets. It looks at the end first, and further back while it does not find one.
func searchCursor(l *partitionLog, start, end int64) (cursorRecord, bool, error) {
	for span := int64(64); ; span *= 16 {
		from := max(start, end-span)
		scan, err := scanCursor(l, from, end)
		if err != nil {
			return cursorRecord{}, false, err
		}
		if scan.found && !scan.unsure || from == start {
			return scan.rec, scan.found, nil
		}
	}
}

// cursorScan finds the last cursor record that is committed, going up a part of the cursor topic's log.
type cursorScan struct {
	pending map[int64][]byte // the last record of a transaction that has not ended yet, by producer
	ended   map[int64]bool   // producers of which the end of a transaction was seen
	rec     cursorRecord
	found   bool
	unsure  bool // what was committed last may lie before the part
}

func newCursorScan() *cursorScan {
	return &cursorScan{pending: map[int64][]byte{}, ended: map[int64]bool{}}
}

// record takes a cursor record of a producer's open transaction.
func (c *cursorScan) record(producer int64, value []byte) { c.pending[producer] = bytes.Clone(value) }

// end takes the marker that ends a producer's transaction.
func (c *cursorScan) end(producer int64, committed bool) error {
	value, ours := c.pending[producer]
	before := c.ended[producer]
	delete(c.pending, producer)
	c.ended[producer] = true
	switch {
	case !committed:
	case ours:
		c.unsure, c.found = false, true
		var err error
		c.rec, err = parseCursor(value)
		return err
	case !before:
		c.unsure = true
		// Else the marker stands there twice: a coordinator that has just become one, after its predecessor has died between a marker and
		// the note of it, writes the marker again.
	}
	return nil
}

// scanCursor looks for the last record that is committed between two offsets.
func scanCursor(l *partitionLog, from, end int64) (*cursorScan, error) {
	scan := newCursorScan()
	for at := from; at < end; {
		batches, err := l.fetch(at, scanBytes)
		if errors.Is(err, errOutOfRange) {
			start, err := l.start()
			if err == nil && start <= at {
				err = errLogMoves
			}
			if err != nil {
				return nil, err
			}
			at = start
			continue
		}
		if err != nil {
			return nil, err
		}
		moved := false
		for i := range batches {
			b := &batches[i]
			if b.raw == nil || b.base >= end {
				break
			}
			if b.last() < at {
				continue
			}
			at, moved = b.last()+1, true
			key, value, some, control, err := record(b.raw)
			switch {
			case err != nil:
				return nil, fmt.Errorf("kafka: topic %s: the batch at offset %d cannot be read: %w", l.topic, b.base, err)
			case control:
				// Key of a control record: version, then kind: 0 abort, 1 commit.
				if len(key) < 4 || key[2] != 0 || key[3] > 1 {
					continue
				}
				if err := scan.end(b.producerID, key[3] == 1); err != nil {
					return nil, topicError(l.topic, err)
				}
			case some && bytes.Equal(key, cursorKey):
				scan.record(b.producerID, value)
			}
		}
		if !moved {
			if l.high < end {
				return nil, topicError(l.topic, errLogMoves) // another leader that does not know yet
			}
			break // compacted
		}
	}
	return scan, nil
}

// record returns key and value of a batch's last record.
func record(raw []byte) (key, value []byte, found, control bool, err error) {
	r, found, control, err := lastRecord(raw)
	if err != nil || !found {
		return nil, nil, found, control, err
	}
	key, value = r.bytes(), r.bytes()
	if r.bad {
		err = errShortResponse
	}
	return key, value, found, control, err
}

func parseCursor(value []byte) (r cursorRecord, err error) {
	if err := json.Unmarshal(value, &r); err != nil {
		return r, &DeliveryError{Err: fmt.Errorf("the cursor record cannot be read: %w", err), Remedy: "see who else writes to the cursor topic"}
	}
	if r.Version != cursorVersion {
		return r, &DeliveryError{Err: fmt.Errorf("the cursor record has version %d, this program knows version %d", r.Version, cursorVersion), Remedy: "run the version that wrote it"}
	}
	return r, nil
}

var _ sink.Settler = (*Sink)(nil)

// KeepsRecord implements sink.Settler: the cursor record of transactional delivery is the truth.
func (s *Sink) KeepsRecord() bool { return s.tally != nil }

// Settled implements sink.Settler.
func (s *Sink) Settled(ctx context.Context, state []byte) error {
	if !isTenure(state) {
		return nil // it is saved before anything is sent
	}
	was, err := parseTenure(state)
	if err != nil {
		return &DeliveryError{Err: err, Remedy: restoreRemedy}
	}
	co := newCoordinator(s)
	defer co.close()
	taken, err := s.takeOver(ctx, co)
	if err != nil || !taken.found || taken.cursor.Generation < was.Generation {
		return err
	}
	acked, committed := was.mark(), taken.cursor.mark()
	switch {
	case taken.cursor.Generation > was.Generation:
		return newerGeneration(taken.cursor.Generation, was.Generation)
	case committed.less(acked): // I2
		return s.cursorBehind(committed, acked)
	case committed != acked:
		return &DeliveryError{Err: fmt.Errorf("%w: up to sequence %d, acknowledged up to %d", ErrNotAcknowledged, committed.sequence, acked.sequence),
			Remedy: "let the sink finish with the former server, as the only address, and stop it in order (SIGTERM), then go on with this one; or begin anew with `binlogmq cursor new-life`, which repeats those messages"}
	}
	return nil
}

// restoreTransactional is Restore for transactional delivery.
func (s *Sink) restoreTransactional(ctx context.Context, state []byte, how sink.Continuation) (fresh bool, err error) {
	cluster, err := s.clusterID(ctx)
	if err != nil {
		return false, err
	}
	co := newCoordinator(s)
	defer co.close()
	taken, err := s.takeOver(ctx, co)
	if err != nil {
		return false, err
	}
	t := tenure{Version: cursorVersion, Cluster: cluster, Deployment: s.o.Deployment, Destination: s.o.Destination, Sink: s.o.Sink}
	why := ""
	var was tenure
	if !isTenure(state) {
		why = "none is saved"
	} else if was, err = parseTenure(state); err != nil && how != sink.Moved {
		return false, &DeliveryError{Err: err, Remedy: restoreRemedy}
	}
	acked, committed := was.mark(), mark{}
	if taken.found && taken.cursor.Generation == was.Generation {
		committed = taken.cursor.mark()
	}
	switch {
	case why != "":
	case err != nil:
		why = "the cursor was moved, and the saved one cannot be read"
	case was.Cluster != cluster:
		why = fmt.Sprintf("the brokers belong to cluster %q, not %q", cluster, was.Cluster)
	case was.Deployment != t.Deployment || was.Destination != t.Destination || was.Sink != t.Sink:
		why = fmt.Sprintf("the saved one belongs to %s/%s/%s", was.Deployment, was.Destination, was.Sink)
	case how == sink.Moved:
		why = "the cursor was moved"
	case taken.found && taken.cursor.Generation > was.Generation:
		return false, newerGeneration(taken.cursor.Generation, was.Generation)
	case committed.less(acked): // I2
		return false, s.cursorBehind(committed, acked)
	case how == sink.Changed && committed != acked:
		return false, &DeliveryError{Err: fmt.Errorf("%w: up to sequence %d, acknowledged up to %d", ErrNotDrained, committed.sequence, acked.sequence), Remedy: drainRemedy}
	case how == sink.Changed:
		why = "the configuration changed, and everything committed is acknowledged"
	}
	t.Generation = was.Generation
	if why != "" {
		fresh, acked, committed = true, mark{}, mark{}
		t.Generation = max(was.Generation, taken.cursor.Generation) + 1
		s.o.Logger.Info("kafka: a new generation begins: "+why, "generation", t.Generation, "transactional_id", s.transactionalID(), "cluster", cluster)
	}
	s.tally.begin(t, acked, committed, taken)
	s.mu.Lock()
	maps.DeleteFunc(s.topics, func(name string, _ *topic) bool { return name != s.cursorTopic() })
	first := !s.restored
	s.restored = true
	s.mu.Unlock()
	if first {
		close(s.alive)
		return fresh, nil
	}
	return fresh, s.Reset(ctx)
}

func newerGeneration(there, saved int64) error {
	return &DeliveryError{Err: fmt.Errorf("%w: the cursor in Kafka has generation %d, the saved one %d", ErrSuperseded, there, saved), Remedy: "restore the newer cursor; " + newLifeRemedy}
}

func (s *Sink) cursorBehind(committed, acked mark) error {
	return &DeliveryError{Topic: s.cursorTopic(), Err: fmt.Errorf("%w: sequence %d, not %d", ErrCursorBehind, committed.sequence, acked.sequence),
		Remedy: "the broker lost a commit or the cursor topic was deleted; compare the topics with the source, then set the cursor to where they end, or " + newLifeRemedy}
}

// less orders marks; the zero value comes before all.
func (k mark) less(o mark) bool {
	switch {
	case !k.set || !o.set:
		return o.set && !k.set
	case k.sequence != o.sequence:
		return k.sequence < o.sequence
	}
	return k.sub < o.sub
}

func (y *tally) begin(t tenure, acked, committed mark, taken *takenOver) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.tenure, y.acked, y.highest, y.taken = t, acked, committed, taken
	y.marks = nil
}

// takeOver begins a session: it takes what Restore has found, or takes the transactional id over again.
func (ses *session) takeOver() bool {
	s, t := ses.s, ses.txn
	fail := func(err error) bool {
		if ses.ctx.Err() == nil {
			ses.fail(err)
		}
		return false
	}
	y := s.tally
	y.mu.Lock()
	taken, claimed := y.taken, y.claimed
	y.taken = nil
	y.mu.Unlock()
	if taken == nil {
		// I8: a successor has left its name. To fence it would take turns with it for ever.
		if err := s.untilAnswered(ses.ctx, "reading the cursor in Kafka", func() error {
			rec, found, err := s.readCursor(ses.ctx, false)
			if err == nil && claimed && found && rec.Owner != y.owner {
				err = &DeliveryError{Err: fmt.Errorf("%w (transactional id %s)", ErrFencedOut, s.transactionalID()), Remedy: "stop one of the two processes, or give each a deployment name of its own"}
			}
			return err
		}); err != nil {
			return fail(err)
		}
		var err error
		if taken, err = s.takeOver(ses.ctx, t.co); err != nil {
			return fail(err)
		}
	}
	y.mu.Lock()
	generation, highest := y.tenure.Generation, y.highest
	y.mu.Unlock()
	var resume mark
	switch {
	case taken.found && taken.cursor.Generation > generation:
		return fail(&DeliveryError{Err: fmt.Errorf("%w: the cursor in Kafka has generation %d, not %d", ErrSuperseded, taken.cursor.Generation, generation), Remedy: "stop one of the two processes"})
	case taken.found && taken.cursor.Generation == generation:
		resume = taken.cursor.mark()
	}
	if resume.less(highest) { // I2
		return fail(s.cursorBehind(resume, highest))
	}
	if s.o.without == skipping {
		resume = mark{}
	}
	topic, err := s.topic(ses.ctx, s.cursorTopic())
	if err != nil {
		return fail(err)
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.err != nil {
		return false
	}
	ses.producerID, ses.epoch, ses.started = taken.producerID, taken.epoch, true
	t.resume = resume
	if t.cursor, err = ses.lane(ses.addTopic(topic), 0); err != nil { // it has one partition
		return false
	}
	t.claim()
	close(t.begun)
	s.o.Logger.Debug("kafka: session started", "transactional_id", s.transactionalID(), "producer_id", taken.producerID, "epoch", taken.epoch, "sequence", resume.sequence)
	return true
}
