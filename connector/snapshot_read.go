package connector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/retry"
	"github.com/binlogmq/binlogmq/internal/tablefilter"
)

// chunkQuery asks for the rows that follow in a table.
type chunkQuery struct {
	table ddl.Name
	key   []string // the key by which last and most were read, as chunkRead has it; nil: the table is begun
	last  []string
	most  []string
	rows  int                        // at most
	bytes int                        // of row images, about
	whole int                        // bytes of memory that rows of a table without a key take, which is read at once, at most
	where func(caseless bool) string // condition, where names of tables are compared so; "": none
	limit time.Duration              // of the statement
}

// chunkRead is what a chunkQuery has found.
type chunkRead struct {
	gone   bool // there is no such table, and no more is told
	begun  bool // the table is begun anew, as its key is another one
	end    bool // no row follows
	keyed  bool
	key    []string
	last   []string
	most   []string
	table  *event.Table
	rows   [][]byte
	bytes  int
	seen   int            // rows that the condition was asked of, at least
	high   event.Position // where the log ended after the rows were read
	server uint32
	time   int64 // microseconds since 1970 UTC
}

// A tableReader reads tables of the source by SELECT. Not for concurrent use.
type tableReader struct {
	c      *Connector
	settle time.Duration // see snapshotSettle
	link   *tableLink    // nil: none
}

// tableLink is a pair of sessions with one server.
type tableLink struct {
	c        *Connector
	addr     string
	settle   time.Duration
	sv       *server
	charsets map[uint32]string
	ask      *session // for what is asked of the server
	data     *session // for rows: text comes as it is stored, in the column's own character set
	budget   *budget  // of data
	broken   bool     // data has a statement under way, or has lost its link
	limit    time.Duration
	known    *answers  // of the table that was read last
	xa       uint64    // how often XA COMMIT had been called when that was looked at last
	xaAt     time.Time // when it was so first
}

func (k *tableReader) close() {
	if k.link != nil {
		k.link.ask.close()
		k.link.data.close()
		k.link = nil
	}
}

// budget is a connection that ends when a row does (I9).
type budget struct {
	net.Conn
	left atomic.Int64
}

var errBudget = errors.New("more bytes come than a row may have")

func (b *budget) Read(p []byte) (int, error) {
	if b.left.Load() < 0 {
		return 0, errBudget
	}
	n, err := b.Conn.Read(p)
	b.left.Add(-int64(n))
	return n, err
}

// rowBudget returns how many bytes of a result may come before a row is there: where rows are large, the text of their values is as long as their image.
func (c *Connector) rowBudget() int64 {
	if c.opt.MaxEvent <= 0 {
		return math.MaxInt64 / 2
	}
	return int64(c.opt.MaxEvent) + 2<<20
}

// connect returns a link to the server with that UUID, as positions in the log mean nothing elsewhere.
func (k *tableReader) connect(ctx context.Context, uuid string) (*tableLink, error) {
	if k.link != nil && k.link.sv.uuid == uuid && !k.link.broken {
		return k.link, nil
	}
	k.close()
	addrs := k.c.opt.Addresses
	if at := k.c.Status().Address; at != "" {
		addrs = slices.Insert(slices.DeleteFunc(slices.Clone(addrs), func(a string) bool { return a == at }), 0, at)
	}
	var errs []error
	for _, addr := range addrs {
		l, err := k.c.linkTables(ctx, addr, uuid)
		if err == nil {
			l.settle = k.settle
			k.link = l
			return l, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return nil, errs[0]
	}
	return nil, errors.New(joined(errs))
}

// metadataWait is how long a statement waits for a lock of a table. While it waits, those who come later wait for it.
const metadataWait = 3 // seconds

func (c *Connector) linkTables(ctx context.Context, addr, uuid string) (_ *tableLink, err error) {
	l := &tableLink{c: c, addr: addr}
	defer func() {
		if err != nil {
			l.ask.close()
			l.data.close()
		}
	}()
	same := func(s *session) (*server, error) {
		sv, err := s.server(ctx)
		if err == nil && sv.uuid != uuid {
			err = fmt.Errorf("%s: server %s answers, and the stream is read from %s", addr, sv.uuid, uuid)
		}
		return sv, err
	}
	if l.ask, err = c.dial(ctx, addr); err != nil {
		return nil, err
	}
	if l.sv, err = same(l.ask); err != nil {
		return nil, err
	}
	if l.charsets, err = l.ask.charsets(ctx, l.sv); err != nil {
		return nil, err
	}
	l.ask.timeout = time.Minute // old servers open tables to describe them
	l.budget = &budget{}
	l.budget.left.Store(math.MaxInt64 / 2)
	l.data, err = c.dialThrough(ctx, addr, func(nc net.Conn) net.Conn {
		l.budget.Conn = nc
		return l.budget
	})
	if err != nil {
		return nil, err
	}
	if _, err = same(l.data); err != nil {
		return nil, err
	}
	for _, q := range []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
		snapshot.Session,
		fmt.Sprintf("SET SESSION lock_wait_timeout=%d", metadataWait),
	} {
		if _, err = l.data.query(ctx, q); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// tables lists the tables of the server whose stream is read that can hold rows, of what match takes, in the order of their names.
func (k *tableReader) tables(ctx context.Context, match func(caseless bool) *tablefilter.Filter) ([]ddl.Name, error) {
	l, err := k.connect(ctx, k.c.Status().ServerUUID)
	if err != nil {
		return nil, err
	}
	all, err := l.tables(ctx, k.c.tables(l.sv), match(l.sv.caseless()))
	return all, k.failed(err)
}

// unseen returns the statements by which the account may read what the patterns take in; none: it may.
func (k *tableReader) unseen(ctx context.Context, match func(caseless bool) *tablefilter.Filter) ([]string, error) {
	l, err := k.connect(ctx, k.c.Status().ServerUUID)
	if err != nil {
		return nil, err
	}
	k.c.learnAccount(ctx, l.ask)
	may, err := l.ask.sight(ctx, l.sv)
	if err != nil {
		return nil, k.failed(err)
	}
	return may.unseen(k.c.tables(l.sv), match(l.sv.caseless()), k.c.accountName()), nil
}

func (l *tableLink) tables(ctx context.Context, captured, wanted *tablefilter.Filter) (all []ddl.Name, err error) {
	schemas, err := l.ask.query(ctx, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
	if err != nil {
		return nil, err
	}
	for i := range schemas.rows() {
		name := schemas.text(i, 0)
		if tablefilter.IsSystem(name) || !captured.MatchSchema(name) || !wanted.MatchSchema(name) {
			continue
		}
		// Sequences and views hold no rows of their own.
		r, err := l.ask.query(ctx, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = "+literal(name)+
			" AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')")
		if err != nil {
			return nil, err
		}
		for j := range r.rows() {
			// The names lie in memory of the result.
			n := ddl.Name{Schema: strings.Clone(r.text(j, 0)), Table: strings.Clone(r.text(j, 1))}
			if captured.Match(n.Schema, n.Table) && wanted.Match(n.Schema, n.Table) {
				all = append(all, n)
			}
		}
	}
	slices.SortFunc(all, func(a, b ddl.Name) int { return strings.Compare(a.Schema+"\x00"+a.Table, b.Schema+"\x00"+b.Table) })
	return slices.Compact(all), nil
}

// failed gives up the link after an error that was none of a statement.
func (k *tableReader) failed(err error) error {
	var stop *StopError
	if err != nil && serverCode(err) == 0 && !errors.As(err, &stop) || k.link != nil && k.link.broken {
		k.close()
	}
	return err
}

// read reads the rows that follow. All that lies before place in the log of the server that it names shows in them.
func (k *tableReader) read(ctx context.Context, place event.Position, q chunkQuery) (*chunkRead, error) {
	l, err := k.connect(ctx, place.ServerUUID)
	if err != nil {
		return nil, err
	}
	got, err := l.read(ctx, place, &q)
	return got, k.failed(err)
}

// end returns where the log of the server that place names ends now.
func (k *tableReader) end(ctx context.Context, place event.Position) (event.Position, error) {
	l, err := k.connect(ctx, place.ServerUUID)
	if err != nil {
		return event.Position{}, err
	}
	at, err := l.end(ctx)
	return at, k.failed(err)
}

func (l *tableLink) end(ctx context.Context) (at event.Position, err error) {
	at.ServerUUID = l.sv.uuid
	if at.File, at.Offset, _, err = l.ask.binlogStatus(ctx, l.sv); err == nil && at.File == "" {
		err = l.c.stop("the source's binary log is off", "set log_bin in its option file and restart it", nil)
	}
	return at, err
}

func (l *tableLink) read(ctx context.Context, place event.Position, q *chunkQuery) (got *chunkRead, err error) {
	// I4: a row is never older than what the stream has shown before it.
	if err := l.visible(ctx, place); err != nil {
		return nil, err
	}
	got = &chunkRead{server: l.sv.id}
	err = l.fetch(ctx, q, got)
	if l.sv.mariaDB && !l.broken {
		// The transaction keeps the table's definition locked.
		if _, e := l.data.query(ctx, "COMMIT"); e != nil && err == nil {
			err = e
		}
	}
	if err != nil || got.gone {
		return got, err
	}
	// I4: nor newer than what it shows afterwards. What a SELECT sees was committed, and so logged, before it.
	if got.high, err = l.end(ctx); err != nil {
		return nil, err
	}
	r, err := l.ask.query(ctx, "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6))*1000000 AS SIGNED)")
	if err != nil {
		return nil, err
	}
	if r.rows() > 0 {
		got.time, err = strconv.ParseInt(r.text(0, 0), 10, 64)
	}
	return got, err
}

// Waits for what the log has to show in tables, too.
const (
	visibleWait = time.Minute // a server shows it at once, unless it waits for replicas to confirm

	// snapshotSettle is the wait where nothing tells. A transaction is sent to replicas before the tables show it.
	snapshotSettle = time.Second
)

// visible waits until SELECTs show everything before a place of the log. On MariaDB the session is in a transaction then.
func (l *tableLink) visible(ctx context.Context, place event.Position) error {
	switch {
	case l.sv.mariaDB:
		if err := l.prepared(ctx); err != nil {
			return err
		}
		return l.until(ctx, func() (bool, error) { return l.consistent(ctx, place) })
	case l.sv.gtid && !place.GTIDs.IsEmpty():
		// A transaction's GTID is executed when its changes can be seen.
		subset := "SELECT GTID_SUBSET('" + place.GTIDs.String() + "', @@GLOBAL.gtid_executed)"
		err := l.until(ctx, func() (bool, error) {
			r, err := l.ask.query(ctx, subset)
			return err == nil && r.rows() > 0 && r.text(0, 0) == "1", err
		})
		if err != nil || l.sv.tells() {
			return err
		}
	}
	return retry.Sleep(ctx, l.settle)
}

// tells tells whether gtid_executed of MySQL holds only what SELECTs show. Before 5.7 a GTID is there once the log has it.
func (sv *server) tells() bool { return sv.gtid && sv.ddl().Version >= 50700 }

// prepared waits until SELECTs show each XA COMMIT that lies in the log by now. MariaDB commits those only after they are logged, and a consistent snapshot
// does not wait for them.
func (l *tableLink) prepared(ctx context.Context) error {
	r, err := l.ask.query(ctx, "SHOW GLOBAL STATUS LIKE 'Com_xa_commit'") // counted when they begin
	if err != nil || r.rows() == 0 {
		return err
	}
	if n := r.number(0, 1); n != l.xa {
		l.xa, l.xaAt = n, time.Now()
	}
	if l.xa == 0 || time.Since(l.xaAt) > l.settle {
		return nil
	}
	return retry.Sleep(ctx, l.settle)
}

// until asks until it is so.
func (l *tableLink) until(ctx context.Context, so func() (bool, error)) error {
	begin := time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		if ok, err := so(); ok || err != nil {
			return err
		}
		if time.Since(begin) > visibleWait {
			return fmt.Errorf("%s: transactions that the log has do not show in tables after %v: does the server wait for a replica to confirm them?", l.addr, visibleWait)
		}
		if err := retry.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// consistent begins a transaction, and tells whether what it sees has come to a place of the log.
func (l *tableLink) consistent(ctx context.Context, place event.Position) (bool, error) {
	if _, err := l.data.query(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
		return false, err
	}
	r, err := l.data.query(ctx, "SHOW STATUS LIKE 'binlog_snapshot_%'")
	if err != nil {
		return false, err
	}
	at := event.Position{ServerUUID: l.sv.uuid}
	for i := range r.rows() {
		switch strings.ToLower(r.text(i, 0)) {
		case "binlog_snapshot_file":
			at.File = strings.Clone(r.text(i, 1))
		case "binlog_snapshot_position":
			at.Offset = r.number(i, 1)
		}
	}
	place.GTIDs = event.GTIDSet{}
	if at.Reached(&place) {
		return true, nil
	}
	_, err = l.data.query(ctx, "COMMIT")
	return false, err
}

// define returns what reads the table; nil: there is no such table.
func (l *tableLink) define(ctx context.Context, n ddl.Name) (*snapshot.Reader, error) {
	k := &catalog{ctx: ctx, c: l.c, addr: l.addr, sv: l.sv}
	if l.c.window != nil {
		// I6: a statement from before the chunk's window counts here, as the reader has come by it; one that comes later disturbs the chunk.
		if altered := l.c.window.altered.Load(); l.known == nil || l.known.table != n || l.known.altered != altered {
			l.known = newAnswers(n, altered)
		}
		k.known = l.known
	}
	folded := l.sv.ddl().Fold(n)
	all, err := k.read(l.ask, func(string) bool { return true }, &folded)
	if refused(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	def := all[folded]
	if def == nil {
		return nil, nil
	}
	log := schema.Logged{Metadata: l.sv.vars["binlog_row_metadata"]}
	if log.Unique, err = k.unique(l.ask, n); err != nil {
		return nil, err
	}
	t, err := snapshot.Definition(n, def, schema.Options{
		MariaDB: l.sv.mariaDB, Version: l.sv.version, Caseless: l.sv.caseless(), From: l.c.opt.SchemaFrom, AllVersions: l.c.opt.AllVersions, Charsets: l.charsets,
	}, log)
	if err != nil {
		return nil, l.c.unreadable(n, err)
	}
	r, err := snapshot.NewReader(t, def)
	if err != nil {
		return nil, l.c.unreadable(n, err)
	}
	// I3: information_schema leaves out columns that the user may not read; then the server refuses to show all.
	_, err = l.data.query(ctx, "SELECT * FROM "+r.From()+" LIMIT 0")
	if code := serverCode(err); code == mysql.ER_COLUMNACCESS_DENIED_ERROR || code == mysql.ER_TABLEACCESS_DENIED_ERROR {
		return nil, l.c.unreadable(n, err)
	}
	return r, err
}

// unreadable is the stop of a table that cannot be read as it is.
func (c *Connector) unreadable(n ddl.Name, err error) error {
	return c.stop("table "+n.String()+" cannot be read for a snapshot", "leave it out with the snapshot's tables, or cancel the snapshot with: "+cancelCommand, err)
}

// keyOf describes the key of a table, so that another order of its rows has another description, and has the reader know which text the server would sort.
func (l *tableLink) keyOf(ctx context.Context, reader *snapshot.Reader, names []string) ([]string, error) {
	t, text := reader.Table(), false
	for _, k := range t.Key {
		text = text || t.Columns[k].Charset != ""
	}
	collations := map[string]string{}
	if text {
		of := " WHERE TABLE_SCHEMA=" + literal(t.Schema) + " AND TABLE_NAME=" + literal(t.Name)
		r, err := l.ask.query(ctx, "SELECT COLUMN_NAME, COLLATION_NAME FROM information_schema.COLUMNS"+of)
		if err != nil {
			return nil, err
		}
		for i := range r.rows() {
			collations[r.text(i, 0)] = r.text(i, 1)
		}
		if r, err = l.ask.query(ctx, "SELECT COLUMN_NAME, SUB_PART, COLLATION, (SELECT ENGINE FROM information_schema.TABLES"+of+") FROM information_schema.STATISTICS"+of+" AND INDEX_NAME='PRIMARY'"); err != nil {
			return nil, err
		}
		// The server sorts, and does not follow the index, where that has parts of columns or both directions; elsewhere than in InnoDB it may.
		always := false
		for i := range r.rows() {
			always = always || r.text(i, 1) != "" || r.text(i, 2) != r.text(0, 2)
		}
		var sorted []string
		for i := range r.rows() {
			name := strings.Clone(r.text(i, 0))
			// MySQL's comparison in gb18030_chinese_ci has come to other rows than the index has in its order, in InnoDB, too.
			if always || sortsOtherwise(collations[name]) && (r.text(i, 3) != "InnoDB" || strings.HasPrefix(collations[name], "gb18030_chinese")) {
				sorted = append(sorted, name)
			}
		}
		for _, name := range reader.ByBytes(sorted) {
			collations[name] += " by bytes"
		}
	}
	key := make([]string, len(names))
	for i, name := range names {
		key[i] = strings.TrimSpace(name + " " + t.Columns[t.Key[i]].SQLType + " " + collations[name])
	}
	return key, nil
}

// sortsOtherwise tells whether a collation is one of those by which servers sort some text otherwise than they compare it.
func sortsOtherwise(collation string) bool {
	return strings.Contains(collation, "nopad") || slices.ContainsFunc([]string{"big5_", "cp1250_", "gb18030_", "latin2_", "latin7_", "tis620_"}, func(set string) bool { return strings.HasPrefix(collation, set) })
}

// fetch reads definition and rows.
func (l *tableLink) fetch(ctx context.Context, q *chunkQuery, got *chunkRead) error {
	r, err := l.define(ctx, q.table) // I6: it is that of the rows, or a statement comes in between, which the window sees
	if err != nil {
		return err
	}
	if r == nil {
		got.gone = true
		return nil
	}
	if err := l.bound(ctx, q.limit); err != nil {
		return err
	}
	got.table = r.Table()
	names, keyed := r.Key()
	s := &selection{l: l, q: q, r: r, got: got, cond: q.where(l.sv.caseless()), from: "SELECT " + strings.Join(r.Select(), ",") + " FROM " + r.From()}
	if !keyed {
		got.end = true
		return s.whole(ctx)
	}
	got.keyed = true
	if got.key, err = l.keyOf(ctx, r, names); err != nil {
		return err
	}
	if q.last, q.most = slices.Clone(q.last), slices.Clone(q.most); !slices.Equal(got.key, q.key) {
		got.begun = q.key != nil
		q.last, q.most = nil, nil
	}
	return s.page(ctx)
}

// rowMemory is what a row takes beside its image, in bytes: its slice, also while the slice of slices grows, and what the allocator rounds up.
const rowMemory = 64

// selection reads the rows of one chunk.
type selection struct {
	l    *tableLink
	q    *chunkQuery
	r    *snapshot.Reader
	got  *chunkRead
	from string // SELECT with columns and table
	cond string // that the rows must meet; "": none
	cut  bool   // more rows came than are taken
	over int    // bytes of rows that came since
	held int    // bytes of memory that the rows take
	buf  []byte
}

// condition is the condition that was ordered, as the last one of a WHERE.
func (s *selection) condition(word string) string {
	if s.cond == "" {
		return ""
	}
	return " " + word + " (" + s.cond + "\n)"
}

// whole reads a table without a key.
func (s *selection) whole(ctx context.Context) error {
	err := s.blame(ctx, s.l.stream(ctx, s.from+s.condition("WHERE"), s.q.limit, func(fields []mysql.FieldValue) error {
		if err := s.add(fields); err != nil {
			return err
		}
		if s.held > s.q.whole {
			return s.l.c.unreadable(s.q.table, fmt.Errorf("it has no primary key, so that it must be read at once, and is larger than %d bytes, with %d more for each row: give it a primary key", s.q.whole, rowMemory))
		}
		return nil
	}))
	return err
}

// page reads the rows that follow in the order of the key.
func (s *selection) page(ctx context.Context) error {
	got, q := s.got, s.q
	got.last, got.most = q.last, q.most
	if got.most == nil {
		most, err := s.key(ctx, s.from+" ORDER BY "+s.r.Order(true)+" LIMIT 1")
		if err != nil || most == nil {
			got.end = err == nil // the table is empty
			return err
		}
		got.most = most
	}
	upto := got.most
	if s.cond != "" {
		// Few rows may meet the condition: what is looked at is bounded as well.
		at, err := s.key(ctx, s.from+" WHERE "+s.r.Where(q.last, got.most)+" ORDER BY "+s.r.Order(false)+fmt.Sprintf(" LIMIT %d, 1", q.rows-1))
		if err != nil {
			return err
		}
		if got.end = at == nil; !got.end {
			upto, got.seen = at, q.rows
		}
	}
	n := 0
	var last []string
	err := s.l.stream(ctx, s.from+" WHERE "+s.r.Where(q.last, upto)+s.condition("AND")+" ORDER BY "+s.r.Order(false)+fmt.Sprintf(" LIMIT %d", q.rows), q.limit, func(fields []mysql.FieldValue) error {
		if s.cut = s.cut || got.bytes >= 2*q.bytes; s.cut {
			for i := range fields {
				s.over += len(fields[i].AsString())
			}
			if s.over > 8*q.bytes {
				return errCut
			}
			return nil
		}
		n++
		if err := s.add(fields); err != nil {
			return err
		}
		var err error
		last, err = s.r.Literals(fields)
		return err
	})
	if err != nil && !errors.Is(err, errCut) {
		return s.blame(ctx, err)
	}
	switch {
	case s.cut, n == q.rows:
		// Also where fewer rows lay up to upto a moment ago: those that have come since push others beyond the limit.
		got.last, got.end = last, false
		return nil
	case s.cond != "":
		got.last = upto
	default:
		got.last, got.end = got.most, true
	}
	if !got.end || slices.Equal(last, got.most) || slices.Equal(q.last, got.most) {
		return nil
	}
	return s.ended(ctx)
}

// ended makes sure of a table's end, where the last row of its key's order was not read: it must have gone, or be found by its key (I3).
func (s *selection) ended(ctx context.Context) error {
	for range 3 { // the row may come and go between two statements
		greatest, err := s.key(ctx, s.from+" ORDER BY "+s.r.Order(true)+" LIMIT 1")
		if err != nil || !slices.Equal(greatest, s.got.most) {
			return err // others have come behind it
		}
		found, err := s.key(ctx, s.from+" WHERE "+s.r.Where(s.q.last, s.got.most)+" ORDER BY "+s.r.Order(true)+" LIMIT 1")
		if err != nil || slices.Equal(found, s.got.most) {
			return err
		}
	}
	return s.l.c.unreadable(s.q.table, fmt.Errorf("its last row has the key %s, and the server does not find it among those greater than %s: rows would be left out: report this as a fault, with SHOW CREATE TABLE",
		strings.Join(s.got.most, ", "), strings.Join(s.q.last, ", ")))
}

// errCut breaks a result off of which enough rows are read.
var errCut = errors.New("more rows than wanted")

// key returns the key of the row that a statement finds; nil: it finds none.
func (s *selection) key(ctx context.Context, sql string) (key []string, err error) {
	err = s.l.stream(ctx, sql, s.q.limit, func(fields []mysql.FieldValue) (err error) {
		key, err = s.r.Literals(fields)
		return err
	})
	return key, err
}

// add takes a row.
func (s *selection) add(fields []mysql.FieldValue) (err error) {
	if s.buf, err = s.r.Append(s.buf[:0], fields); err != nil {
		return s.l.c.unreadable(s.q.table, err)
	}
	if most := s.l.c.opt.MaxEvent; most > 0 && len(s.buf) > most {
		where := ""
		if key, err := s.r.Literals(fields); err == nil && len(key) > 0 {
			where = " with the key " + strings.Join(key, ", ")
		}
		return s.l.c.stop(fmt.Sprintf("the row of table %s%s has %d bytes", s.q.table, where, len(s.buf)), "raise source.max_event, or leave the table out with the snapshot's tables", nil)
	}
	before := s.held
	s.got.rows = append(s.got.rows, slices.Clone(s.buf))
	s.got.bytes += len(s.buf)
	s.held += len(s.buf) + rowMemory // I9
	if large := s.l.c.onLarge; large != nil && before < binlog.LargeEvent && s.held >= binlog.LargeEvent {
		large(s.held)
	}
	return nil
}

// blame says of an error whether the condition that was ordered is at fault.
func (s *selection) blame(ctx context.Context, err error) error {
	if err == nil || s.cond == "" || serverCode(err) == 0 || passing(err) {
		return err
	}
	if e := s.l.stream(ctx, s.from+" LIMIT 0", s.q.limit, func([]mysql.FieldValue) error { return nil }); e != nil {
		return err // without it there is an error, too
	}
	return s.l.c.stop(fmt.Sprintf("the snapshot's condition for table %s is refused: %s", s.q.table, s.cond),
		"cancel the snapshot with: "+cancelCommand+", correct the condition and order it again", err)
}

// bound has the server end statements that take too long.
func (l *tableLink) bound(ctx context.Context, limit time.Duration) error {
	if l.limit == limit {
		return nil
	}
	set := ""
	switch v := l.sv.ddl().Version; {
	case l.sv.mariaDB && v >= 100101:
		set = fmt.Sprintf("max_statement_time=%.3f", limit.Seconds())
	case !l.sv.mariaDB && v >= 50708:
		set = fmt.Sprintf("max_execution_time=%d", limit.Milliseconds())
	default:
		return nil // we end them, see stream
	}
	if _, err := l.data.query(ctx, "SET SESSION "+set); err != nil {
		return err
	}
	l.limit = limit
	return nil
}

// errSlow is a statement that was ended because it took too long.
var errSlow = errors.New("it took too long")

// stream runs a SELECT and calls each for its rows, whose fields last until it returns.
func (l *tableLink) stream(ctx context.Context, sql string, limit time.Duration, each func(fields []mysql.FieldValue) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	nc := l.data.conn.Conn.Conn
	grace := limit
	if l.limit != 0 {
		grace += metadataWait*time.Second + limit/2 // the server ends it before
	}
	until := time.Now().Add(grace)
	_ = nc.SetDeadline(until)
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	most := l.c.rowBudget()
	l.budget.left.Store(most)
	var result mysql.Result
	err := l.data.conn.ExecuteSelectStreaming(sql, &result, func(row []mysql.FieldValue) error {
		err := each(row)
		l.budget.left.Store(most)
		return err
	}, nil)
	stop()
	spent := l.budget.left.Swap(math.MaxInt64/2) < 0
	_ = nc.SetDeadline(time.Time{})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if serverCode(err) == 0 {
		l.abandon()
	}
	switch code := serverCode(err); {
	case spent:
		return l.c.stop("a row is larger than may be kept in memory: "+firstWords(sql), "raise source.max_event, or leave the table out with the snapshot's tables", nil)
	case code == errStatementTimeMaria, code == errStatementTime, code == 0 && ctx.Err() == nil && time.Now().After(until):
		return fmt.Errorf("%s: %s: %w: %w", l.addr, firstWords(sql), errSlow, err)
	case code != 0:
		return fmt.Errorf("%s: %s: %w", l.addr, firstWords(sql), err)
	}
	return err
}

// abandon gives up a connection in the middle of a statement, which the server would go on with for a while.
func (l *tableLink) abandon() {
	l.broken = true
	id := l.data.conn.GetConnectionID()
	l.data.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := l.ask.query(ctx, fmt.Sprintf("KILL %d", id)); err != nil {
		l.c.log.Debug("a statement that is not waited for is not ended", "error", err)
	}
}

// Errors of servers that pass by themselves, or need the table's definition to be read again.
const (
	errStatementTime      = 3024 // MySQL: max_execution_time
	errStatementTimeMaria = 1969 // max_statement_time
)

// passing tells whether a server's error is one of the moment.
func passing(err error) bool {
	switch serverCode(err) {
	case mysql.ER_LOCK_WAIT_TIMEOUT, mysql.ER_LOCK_DEADLOCK, mysql.ER_QUERY_INTERRUPTED, mysql.ER_TABLE_DEF_CHANGED, mysql.ER_NO_SUCH_TABLE, mysql.ER_BAD_DB_ERROR,
		mysql.ER_NEED_REPREPARE, mysql.ER_CHECKREAD, mysql.ER_SERVER_SHUTDOWN, errStatementTime, errStatementTimeMaria:
		return true
	}
	return false
}
