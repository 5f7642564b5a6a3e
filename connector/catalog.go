package connector

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/connector/schema"
	"github.com/binlogmq/binlogmq/connector/snapshot"
	"github.com/binlogmq/binlogmq/event"
)

// catalog answers from information_schema over a connection of its own, which
// it opens when it is first asked.
type catalog struct {
	ctx  context.Context
	c    *Connector
	addr string
	sv   *server
	s    *session

	known *answers // what is asked of tables themselves is not asked again; nil: it is
}

func (k *catalog) close() { k.s.close() }

// answers remembers what a table itself was asked, while no statement is known to have altered any.
type answers struct {
	table   ddl.Name
	altered uint64 // see window
	labels  map[string]labelled
	json    map[ddl.Name][]string // columns
}

// labelled is what resolve has found.
type labelled struct {
	members []string
	doubted []int
}

func newAnswers(n ddl.Name, altered uint64) *answers {
	return &answers{table: n, altered: altered, labels: map[string]labelled{}, json: map[ddl.Name][]string{}}
}

// open runs a statement that opens a table, and so waits for who has locked it. Other questions of the session wait as long as the server has them wait: old
// servers leave out of information_schema what they have not waited for.
func (k *catalog) open(s *session, sql string) (result, error) {
	if _, err := s.query(k.ctx, fmt.Sprintf("SET SESSION lock_wait_timeout=%d", metadataWait)); err != nil {
		return result{}, err
	}
	r, err := s.query(k.ctx, sql)
	if err != nil && serverCode(err) == 0 {
		return r, err
	}
	if _, e := s.query(k.ctx, "SET SESSION lock_wait_timeout=DEFAULT"); e != nil {
		return r, e
	}
	return r, err
}

// ask calls f with a session; once more on a fresh one if the idle connection may have been cut.
func (k *catalog) ask(f func(*session) error) error {
	for first := true; ; first = false {
		fresh := k.s == nil
		if fresh {
			s, err := k.c.dial(k.ctx, k.addr)
			if err != nil {
				return err
			}
			s.timeout = readTimeout
			k.s = s
		}
		err := f(k.s)
		if err == nil || serverCode(err) != 0 || fresh || !first {
			return err
		}
		k.s.close()
		k.s = nil
	}
}

// settle is how long a statement may be in the log before information_schema shows what it did, on the
// servers whose position does not wait for that and whose tables are not locked meanwhile.
const settle = 500 * time.Millisecond

// readTimeout bounds a question to information_schema. Old servers open every table to answer it.
const readTimeout = 10 * time.Minute

// position returns the end of the log.
func (k *catalog) position(s *session, hideGTIDs bool) (event.Position, error) {
	pos, err := k.c.latest(k.ctx, s, k.sv)
	if hideGTIDs {
		pos.GTIDs = event.GTIDSet{}
	}
	return pos, err
}

// tables reads definitions of tables, and the character sets of databases, with a place in the log up to which they
// hold: every statement before it shows in them. scope tells which schemas are wanted; with a table, only that one. touched
// returns what statements between two places may have changed of what was read. What is altered each time that it is
// read is left out, together with its database, of which then nothing is known.
func (k *catalog) tables(hideGTIDs bool, scope func(string) bool, table *ddl.Name, touched func(from, to event.Position, all map[ddl.Name]*ddl.Table) (map[ddl.Name]bool, error)) (map[ddl.Name]*ddl.Table, event.Position, error) {
	var all map[ddl.Name]*ddl.Table
	var after event.Position
	for try := 1; ; try++ {
		var before event.Position
		err := k.ask(func(s *session) (err error) {
			if before, err = k.position(s, hideGTIDs); err != nil {
				return err
			}
			if before.GTIDs.IsEmpty() && !k.sv.mariaDB {
				select {
				case <-time.After(settle):
				case <-k.ctx.Done():
					return k.ctx.Err()
				}
			}
			if all, err = k.read(s, scope, table); err != nil {
				return err
			}
			after, err = k.position(s, hideGTIDs)
			return err
		})
		if err != nil {
			return nil, after, err
		}
		changed, err := touched(before, after, all)
		if err != nil {
			return nil, after, err
		}
		if relevant(changed, scope, table); len(changed) == 0 {
			return all, after, nil
		}
		switch {
		case table != nil && try == 20:
			return nil, after, fmt.Errorf("%s: table %s is altered faster than its definition can be read", k.addr, table)
		case table == nil && try == 3:
			without(all, changed)
			return all, after, nil
		}
	}
}

// relevant leaves of what was changed only what is wanted: the table, its database, or what the scope has.
func relevant(changed map[ddl.Name]bool, scope func(string) bool, table *ddl.Name) {
	maps.DeleteFunc(changed, func(n ddl.Name, _ bool) bool {
		if table != nil {
			return n != *table && n != ddl.Name{Schema: table.Schema}
		}
		return !scope(n.Schema)
	})
}

// without takes out what was changed: tables, and with a database all of it. The database of a table goes too, so that nobody takes
// the table for one that is not there.
func without(all map[ddl.Name]*ddl.Table, changed map[ddl.Name]bool) {
	maps.DeleteFunc(all, func(n ddl.Name, _ *ddl.Table) bool { return changed[n] || changed[ddl.Name{Schema: n.Schema}] })
	for n := range changed {
		delete(all, ddl.Name{Schema: n.Schema})
	}
}

// read reads what information_schema shows now.
func (k *catalog) read(s *session, scope func(string) bool, table *ddl.Name) (map[ddl.Name]*ddl.Table, error) {
	r, err := s.query(k.ctx, "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA")
	if err != nil {
		return nil, err
	}
	srv := k.sv.ddl()
	all := map[ddl.Name]*ddl.Table{}
	var wanted []string
	for i := range r.rows() {
		name := r.text(i, 0)
		if !scope(name) || table != nil && srv.Fold(ddl.Name{Schema: name}).Schema != table.Schema {
			continue
		}
		all[srv.Fold(ddl.Name{Schema: name})] = &ddl.Table{Charset: r.text(i, 1)}
		wanted = append(wanted, literal(name))
	}
	// MySQL's dictionary finds many at once; the others open each table, and of one schema at a time. Those count names only.
	step, of, most := 1, "TABLES", maxTables
	if !k.sv.mariaDB && srv.Version >= 80000 {
		step, of, most = 500, "COLUMNS", maxColumns
	}
	if table == nil {
		if err := k.count(s, of, most, wanted); err != nil {
			return nil, err
		}
	}
	for ; len(wanted) > 0; wanted = wanted[min(step, len(wanted)):] {
		in := "= " + wanted[0]
		if part := wanted[:min(step, len(wanted))]; len(part) > 1 {
			in = "IN (" + strings.Join(part, ",") + ")"
		}
		if table != nil {
			in += " AND TABLE_NAME=" + literal(table.Table)
		}
		if err := k.tablesIn(s, srv, in, all); err != nil {
			return nil, err
		}
		columns := 0
		for _, t := range all {
			columns += len(t.Columns)
		}
		if columns > maxColumns {
			return nil, tooMany(columns, "columns", maxColumns)
		}
	}
	return all, nil
}

// Limits of what is read at once: a history has room for little more (I9).
const (
	maxTables  = 50_000
	maxColumns = 300_000
)

func tooMany(n int, what string, most int) error {
	return &StopError{What: fmt.Sprintf("the databases that are followed have %d %s or more, and definitions of %d are kept", n, what, most),
		Remedy: "narrow the destination's tables down to fewer databases, or set binlog_row_metadata=FULL on the source", Err: schema.ErrTooLarge}
}

// count fails before more is read than may be kept.
func (k *catalog) count(s *session, of string, most int, schemas []string) error {
	n := 0
	for part := range slices.Chunk(schemas, 500) {
		r, err := s.query(k.ctx, "SELECT COUNT(*) FROM information_schema."+of+" WHERE TABLE_SCHEMA IN ("+strings.Join(part, ",")+")")
		if err != nil {
			return err
		}
		if r.rows() > 0 {
			n += int(r.number(0, 0))
		}
	}
	if n > most {
		return tooMany(n, strings.ToLower(of), most)
	}
	return nil
}

// tablesIn reads the tables of schemas, which in tells as it stands behind the schema's name in a condition.
func (k *catalog) tablesIn(s *session, srv ddl.Server, in string, all map[ddl.Name]*ddl.Table) error {
	where := " WHERE TABLE_SCHEMA " + in
	r, err := s.query(k.ctx, "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, TABLE_COLLATION, ENGINE FROM information_schema.TABLES"+where)
	if err != nil {
		return err
	}
	tables := make(map[ddl.Name]*ddl.Table, r.rows())
	memory := map[ddl.Name]bool{} // tables of the engine whose indexes are hashes by nature
	named := func(i int) ddl.Name { return ddl.Name{Schema: r.text(i, 0), Table: r.text(i, 1)} }
	for i := range r.rows() {
		switch kind := r.text(i, 2); kind {
		case "BASE TABLE", "SYSTEM VERSIONED", "SEQUENCE":
			versioned := kind == "SYSTEM VERSIONED"
			tables[named(i)] = &ddl.Table{Charset: ddl.CharsetOf(r.text(i, 3)), InnoDB: r.text(i, 4) == "InnoDB", Versioned: versioned, RowTimes: versioned}
			memory[named(i)] = r.text(i, 4) == "MEMORY"
		}
	}
	if len(tables) == 0 {
		return nil
	}
	expression := "''"
	if k.sv.mariaDB && srv.Version >= 100300 {
		expression = "GENERATION_EXPRESSION"
	}
	r, err = s.query(k.ctx, "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, CHARACTER_OCTET_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE,"+
		" DATETIME_PRECISION, IS_NULLABLE, EXTRA, "+expression+" FROM information_schema.COLUMNS"+where+" ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION")
	if err != nil {
		return err
	}
	var doubts []doubt
	for i := range r.rows() {
		t := tables[named(i)]
		if t == nil {
			continue
		}
		c := ddl.Column{
			Name: r.text(i, 2), DataType: strings.ToLower(r.text(i, 3)), SQLType: r.text(i, 4), Charset: r.text(i, 5),
			Fraction: r.number(i, 9), Nullable: r.text(i, 10) == "YES", Invisible: strings.Contains(r.text(i, 11), "INVISIBLE"),
			Virtual: strings.Contains(r.text(i, 11), "VIRTUAL"),
		}
		switch c.DataType {
		case "char", "varchar", "binary", "varbinary":
			c.Octets = r.number(i, 6)
		case "decimal", "bit":
			c.Precision, c.Scale = r.number(i, 7), r.number(i, 8)
		case "enum", "set":
			var in []int
			if c.Members, in = labels(&c); len(in) > 0 {
				doubts = append(doubts, doubt{named(i), len(t.Columns), in})
			}
		}
		switch r.text(i, 12) {
		case "ROW START":
			t.RowTimes = false // its columns are not those that versioning adds by itself
		case "ROW END":
			c.RowEnd = true
		}
		t.Columns = append(t.Columns, c)
	}
	for i := range doubts {
		d := &doubts[i]
		c := &tables[d.table].Columns[d.column]
		column := d.table.String() + "\x00" + c.Name + "\x00" + c.SQLType + "\x00" + c.Charset
		known := false
		if k.known != nil {
			var is labelled
			if is, known = k.known.labels[column]; known {
				c.Members, d.labels = slices.Clone(is.members), is.doubted
			}
		}
		if !known {
			if err := k.resolve(s, d, c); err != nil {
				return err
			}
			if k.known != nil {
				k.known.labels[column] = labelled{slices.Clone(c.Members), d.labels}
			}
		}
		if len(d.labels) > 0 {
			k.tellDoubt(d, c)
		}
	}
	if err := k.indexes(s, where, tables, memory); err != nil {
		return err
	}
	if k.sv.mariaDB {
		if err := k.json(s, " WHERE CONSTRAINT_SCHEMA "+in, tables); err != nil {
			return err
		}
	}
	for n, t := range tables {
		if len(t.Columns) == 0 {
			continue // it may not be looked at
		}
		if t.RowTimes {
			t.AddRowTimes()
		}
		all[srv.Fold(n)] = t
	}
	return nil
}

// labels returns the labels of an ENUM or SET in UTF-8, nil if they cannot be read, and the indexes of those that may be others:
// servers show a question mark in the place of a character that three bytes of UTF-8 cannot hold, and of a byte that is none.
func labels(c *ddl.Column) (list []string, doubtful []int) {
	list, ok := schema.ParseMembers(c.SQLType)
	if !ok {
		return nil, nil
	}
	wide := ofBytes(c) || event.Holds(c.Charset, "\U0001F600")
	for i, l := range list {
		if wide && strings.Contains(l, "?") {
			doubtful = append(doubtful, i)
		}
		if isUTF8(l) || ofBytes(c) {
			continue
		}
		u, err := event.AppendUTF8(nil, c.Charset, []byte(l)) // some servers do not convert them
		if err != nil {
			return nil, nil
		}
		list[i] = string(u)
	}
	return list, doubtful
}

// A doubt is about labels of a column, by their indexes.
type doubt struct {
	table  ddl.Name
	column int
	labels []int
}

// resolve puts in the labels as they are, and leaves in d those of which the server does not tell. A recursion keeps the column's type for the numbers that it
// adds, so that they are shown as labels though no row has them.
func (k *catalog) resolve(s *session, d *doubt, c *ddl.Column) error {
	name, shown := snapshot.Quote(c.Name), "HEX(CONVERT(l USING utf8mb4))"
	if ofBytes(c) {
		shown = "HEX(l)"
	}
	if _, err := s.query(k.ctx, "USE "+snapshot.Quote(d.table.Schema)); err != nil && serverCode(err) == 0 { // some servers take no such query without a database
		return err
	}
	for part := range slices.Chunk(slices.Clone(d.labels), 500) {
		numbers := make([]string, len(part))
		for i, at := range part {
			stored := uint64(at) + 1
			if c.DataType == "set" {
				stored = 1 << at
			}
			numbers[i] = fmt.Sprintf("SELECT %d i,CAST(%d AS UNSIGNED) n", at+1, stored) // else a DECIMAL, which has no room for the last of 64
		}
		r, err := k.open(s, fmt.Sprintf("WITH RECURSIVE r(i,l) AS (SELECT 0,t.%s FROM (SELECT 1) d LEFT JOIN %s.%s t ON FALSE UNION ALL SELECT k.i,k.n FROM r JOIN (%s) k ON r.i=0) SELECT i,%s FROM r WHERE i>0",
			name, snapshot.Quote(d.table.Schema), snapshot.Quote(d.table.Table), strings.Join(numbers, " UNION ALL "), shown))
		if err != nil {
			if serverCode(err) == 0 || passing(err) && !refused(err) { // I6: it may tell later
				return err
			}
			return nil // it is too old, or does not let us look
		}
		for i := range r.rows() {
			// MariaDB from 10.3 on gives a SET a byte there, which is not enough for more than eight labels.
			label, err := hex.DecodeString(r.text(i, 1))
			at := int(r.number(i, 0)) - 1
			if err == nil && slices.Contains(part, at) && shownAs(string(label), c.Members[at], ofBytes(c)) {
				c.Members[at] = string(label)
				d.labels = slices.DeleteFunc(d.labels, func(l int) bool { return l == at })
			}
		}
	}
	return nil
}

// maxDoubted bounds the columns of which the log tells that their labels are in doubt.
const maxDoubted = 1000

// tellDoubt warns once of labels that are published as information_schema shows them, as the source does not tell whether they are others. A question
// mark mostly is one, so nothing stops at them.
func (k *catalog) tellDoubt(d *doubt, c *ddl.Column) {
	if k.sv.vars["binlog_row_metadata"] == "FULL" && k.c.window == nil || !k.c.tables(k.sv).Match(d.table.Schema, d.table.Table) {
		return // the log has them, or nobody asks
	}
	column := d.table.String() + "." + c.Name
	if !k.c.doubted.first(column) {
		return
	}
	var list []string
	for _, at := range d.labels[:min(len(d.labels), mostNamed)] {
		list = append(list, c.Members[at])
	}
	k.c.log.Warn("the source does not tell whether a question mark in labels of a column is one, or stands for a character that information_schema cannot show: they are published as they are shown",
		"column", column, "labels", list, "remedy", "nothing, if they are question marks; else set binlog_row_metadata=FULL where the source has it, grant SELECT on the table, or rename the labels")
}

// onces remembers what was told. It is safe for concurrent use.
type onces struct {
	mu   sync.Mutex
	told map[string]bool
}

// first reports whether it is called with a text for the first time, and not too many came before.
func (o *onces) first(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told[text] || len(o.told) >= maxDoubted {
		return false
	}
	if o.told == nil {
		o.told = map[string]bool{}
	}
	o.told[text] = true
	return true
}

// shownAs reports whether information_schema shows a label so: with question marks in the place of what it cannot show.
func shownAs(label, shown string, ofBytes bool) bool {
	if ofBytes {
		same := len(label) == len(shown)
		for i := 0; same && i < len(label); i++ {
			same = label[i] == shown[i] || shown[i] == '?' && label[i] >= utf8.RuneSelf
		}
		return same
	}
	return slices.EqualFunc([]rune(label), []rune(shown), func(a, b rune) bool { return a == b || b == '?' && a > 0xffff })
}

// ofBytes reports whether the labels are in no character set; MySQL then names none.
func ofBytes(c *ddl.Column) bool { return c.Charset == "" || c.Charset == "binary" }

func isUTF8(s string) bool { return strings.ToValidUTF8(s, "") == s }

// indexes reads primary keys and the indexes that come with hidden columns: those with expressions, and on MariaDB unique ones by
// hash, unless the engine makes hashes itself.
func (k *catalog) indexes(s *session, where string, tables map[ddl.Name]*ddl.Table, memory map[ddl.Name]bool) error {
	expression := "''"
	if !k.sv.mariaDB && k.sv.ddl().Version >= 80013 {
		expression = "EXPRESSION"
	}
	r, err := s.query(k.ctx, "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, NON_UNIQUE, INDEX_TYPE, "+expression+" FROM information_schema.STATISTICS"+where+
		" ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX")
	if err != nil {
		return err
	}
	for i := range r.rows() {
		n := ddl.Name{Schema: r.text(i, 0), Table: r.text(i, 1)}
		t := tables[n]
		if t == nil {
			continue
		}
		index, part := r.text(i, 2), int(r.number(i, 3))
		switch {
		case r.text(i, 7) != "":
			t.Columns = append(t.Columns, ddl.Column{Name: ddl.HiddenName(index, part-1), Hidden: index, Invisible: true, AsLogged: true})
		case index == "PRIMARY":
			for j := range t.Columns {
				if t.Columns[j].Name == r.text(i, 4) {
					t.Columns[j].Key = part
				}
			}
		case k.sv.mariaDB && r.text(i, 6) == "HASH" && r.number(i, 5) == 0 && part == 1 && !memory[n]:
			n := 1
			for _, c := range t.Columns {
				if strings.HasPrefix(c.Name, "DB_ROW_HASH_") {
					n++
				}
			}
			t.Columns = append(t.Columns, ddl.Column{Name: fmt.Sprintf("DB_ROW_HASH_%d", n), Hidden: index, Invisible: true, AsLogged: true})
		}
	}
	return nil
}

// unique returns the columns of the first unique key of the table all of whose columns are NOT NULL and whole, in the server's order of keys: that is the one
// which the server takes for the primary key of a table that has none. None: there is none.
func (k *catalog) unique(s *session, n ddl.Name) ([]string, error) {
	r, err := s.query(k.ctx, "SHOW INDEX FROM "+snapshot.Quote(n.Schema)+"."+snapshot.Quote(n.Table))
	if err != nil {
		return nil, err
	}
	var columns []string
	fit := false
	for i := range r.rows() {
		if r.named(i, "Seq_in_index") == "1" {
			if fit {
				break
			}
			columns, fit = nil, true
		}
		name := r.named(i, "Column_name")
		// A part that is an expression has no name.
		fit = fit && r.named(i, "Non_unique") == "0" && r.named(i, "Null") != "YES" && r.named(i, "Sub_part") == "" && name != ""
		columns = append(columns, name)
	}
	if !fit {
		return nil, nil
	}
	return columns, nil
}

// json marks MariaDB's JSON columns: longtexts whose column check is json_valid.
func (k *catalog) json(s *session, where string, tables map[ddl.Name]*ddl.Table) error {
	r, err := s.query(k.ctx, "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS"+where)
	if err != nil {
		if serverCode(err) != 0 {
			return nil // before 10.2 there are no checks
		}
		return err
	}
	renamed := map[ddl.Name]bool{}
	for i := range r.rows() {
		n, name, check := ddl.Name{Schema: r.text(i, 0), Table: r.text(i, 1)}, r.text(i, 2), r.text(i, 3)
		t := tables[n]
		if t == nil {
			continue
		}
		for j := range t.Columns {
			switch c := &t.Columns[j]; {
			case c.DataType != "longtext" || check != jsonCheck(c):
			case name == c.Name:
				c.JSON = true
			default: // RENAME COLUMN leaves the check its name; it may be another column's, too
				renamed[n] = true
			}
		}
	}
	for n := range renamed {
		t := tables[n]
		if k.known != nil {
			if list, known := k.known.json[n]; known {
				for j := range t.Columns {
					t.Columns[j].JSON = t.Columns[j].JSON || slices.Contains(list, t.Columns[j].Name)
				}
				continue
			}
		}
		r, err := k.open(s, "SHOW CREATE TABLE "+snapshot.Quote(n.Schema)+"."+snapshot.Quote(n.Table))
		switch {
		case err != nil && (serverCode(err) == 0 || passing(err) && !refused(err)): // I6: it may tell later
			return err
		case err != nil:
			continue // it is gone, or may not be looked at
		case r.rows() != 1:
			continue
		}
		list := []string{}
		for line := range strings.SplitSeq(r.text(0, 1), "\n") {
			for j := range t.Columns {
				c := &t.Columns[j]
				if strings.HasPrefix(line, "  "+snapshot.Quote(c.Name)+" longtext ") && strings.HasSuffix(strings.TrimSuffix(line, ","), " CHECK ("+jsonCheck(c)+")") {
					c.JSON = true
					list = append(list, strings.Clone(c.Name))
				}
			}
		}
		if k.known != nil {
			k.known.json[n] = list
		}
	}
	return nil
}

// jsonCheck is the check that MariaDB gives to a JSON column.
func jsonCheck(c *ddl.Column) string { return "json_valid(" + snapshot.Quote(c.Name) + ")" }

// refused reports whether the server says that a table is not there or may not be looked at.
func refused(err error) bool {
	switch serverCode(err) {
	case mysql.ER_DBACCESS_DENIED_ERROR, mysql.ER_TABLEACCESS_DENIED_ERROR, mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR, mysql.ER_NO_SUCH_TABLE, mysql.ER_BAD_DB_ERROR:
		return true
	}
	return false
}
