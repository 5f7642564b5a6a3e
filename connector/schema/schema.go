package schema

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/binlogmq/binlogmq/connector/binlog"
	"github.com/binlogmq/binlogmq/connector/ddl"
	"github.com/binlogmq/binlogmq/event"
)

// Sources of column names.
const (
	FromHistory = ""    // the log where it has names, else the destination's schema history
	FromLog     = "log" // the log only: binlog_row_metadata=FULL
)

// Options configures a [Builder].
type Options struct {
	MariaDB     bool
	Version     string            // of the server, for the remedies in errors
	Caseless    bool              // of the server: see event.Table
	From        string            // FromHistory or FromLog
	AllVersions bool              // no table has RowEnd: rows of MariaDB's tables WITH SYSTEM VERSIONING are shown as they are stored
	Charsets    map[uint32]string // collation id -> character set, as the server has them
	View        *View             // nil: what the log says is all that is known
}

// Builder makes tables of TABLE_MAPs and remembers them. It implements
// binlog.Tables. Not for concurrent use.
type Builder struct {
	opt    Options
	known  map[string]*entry // by definition; those used since the last generation began
	before map[string]*entry // the generation before
	wrote  int               // version of the server that wrote the TABLE_MAP at hand, as in ddl.Server
	weight int               // of known
	limit  int               // of a generation
}

type entry struct {
	table  *event.Table
	from   origin
	weight int
}

// origin tells one definition of a table from another. Plans are made anew where it changes.
type origin struct {
	state ddl.State
	def   *ddl.Table
	wrote int
}

// generation bounds the bytes of the tables that are remembered of one generation, of which there are two (I9).
const generation = 64 << 20

// New returns a Builder.
func New(opt Options) *Builder {
	return &Builder{opt: opt, known: map[string]*entry{}, limit: generation}
}

// FullMetadata returns the statement that makes the server log complete
// TABLE_MAPs, and how it stays so.
func FullMetadata(mariaDB bool, version string) string {
	if mariaDB {
		if !atLeast(version, 10, 5, 0) {
			return "MariaDB before 10.5 cannot log column names: upgrade, or leave schema: log out"
		}
		return "run on the source: SET GLOBAL binlog_row_metadata=FULL; and put binlog_row_metadata=FULL under [mariadb] in its option file"
	}
	if !atLeast(version, 8, 0, 1) {
		return "MySQL before 8.0.1 cannot log column names: upgrade, or leave schema: log out"
	}
	return "run on the source: SET PERSIST binlog_row_metadata=FULL"
}

func atLeast(version string, want ...int) bool {
	for _, w := range want {
		n, digits := 0, 0
		for digits < len(version) && version[digits] >= '0' && version[digits] <= '9' && digits < 6 {
			n = n*10 + int(version[digits]-'0')
			digits++
		}
		if n != w {
			return n > w
		}
		version = strings.TrimPrefix(version[digits:], ".")
	}
	return true
}

// Changed implements binlog.Tables.
func (b *Builder) Changed(st *binlog.Statement) error {
	if b.opt.View == nil {
		return nil
	}
	return b.opt.View.Changed(st)
}

func (b *Builder) origin(n ddl.Name) (o origin) {
	o.wrote = b.wrote
	if b.opt.View != nil {
		o.state, o.def = b.opt.View.def(n)
	}
	return o
}

// tableName is the name of a TABLE_MAP's table as the history has it.
func (b *Builder) tableName(t *binlog.TableMap) ddl.Name {
	n := ddl.Name{Schema: text(t.Schema), Table: text(t.Table)}
	if b.opt.View != nil {
		n = b.opt.View.srv.Fold(n)
	}
	return n
}

// Decided tells why rows of a definition are passed over where the reader stands, as Decide has noted; nil: they are not.
func (b *Builder) Decided(t *binlog.TableMap) (*binlog.StopError, error) {
	if b.opt.View == nil {
		return nil, nil
	}
	n := b.tableName(t)
	passed, err := b.opt.View.passed(n, t.Definition)
	if err != nil || !passed {
		return nil, err
	}
	return &binlog.StopError{
		What: "rows like these could not be read when they came first, and have been passed over since", OfTable: true,
		Remedy: "to have those that come from now on read again, stop binlogmq and run: binlogmq schema forget --table " + n.String(),
	}, nil
}

// Decide notes in the history that rows of a definition are passed over from here on, until a statement changes the table. It returns false if
// that cannot be kept.
func (b *Builder) Decide(t *binlog.TableMap, _ *binlog.StopError) (bool, error) {
	if b.opt.View == nil {
		return false, nil
	}
	return b.opt.View.passOver(b.tableName(t), t.Definition)
}

// Table implements binlog.Tables.
func (b *Builder) Table(t *binlog.TableMap) (*event.Table, error) {
	n := b.tableName(t)
	if b.wrote = t.Version; b.wrote == 0 {
		b.wrote = ddl.ParseVersion(b.opt.Version)
	}
	from := b.origin(n)
	if e, ok := b.known[string(t.Definition)]; ok && e.from == from {
		return e.table, nil
	}
	e, ok := b.before[string(t.Definition)]
	if !ok || e.from != from {
		table, err := b.build(t, n)
		if err != nil {
			return nil, err
		}
		e = &entry{table: table, from: b.origin(n), weight: len(t.Definition) + 256}
		if table != nil {
			e.weight += table.Memory()
		}
	}
	if b.weight+e.weight > b.limit {
		b.before, b.known, b.weight = b.known, map[string]*entry{}, 0
	}
	if old, ok := b.known[string(t.Definition)]; ok {
		b.weight -= old.weight
	}
	b.known[string(t.Definition)] = e
	b.weight += e.weight
	return e.table, nil
}

func stop(what, remedy string, err error) error {
	return &binlog.StopError{What: what, Remedy: remedy, Err: err, OfTable: true}
}

const skipRemedy = "exclude the table, or upgrade binlogmq if a later version supports it"

func (b *Builder) build(t *binlog.TableMap, n ddl.Name) (*event.Table, error) {
	cols, err := t.Columns()
	if err != nil {
		return nil, err
	}
	table := &event.Table{Schema: string(t.Schema), Name: string(t.Table), Caseless: b.opt.Caseless, Columns: make([]event.Column, len(cols.Types))}
	if err := b.columns(table, cols); err != nil {
		return nil, err
	}
	joined := b.joined(table)
	if joined {
		for _, k := range table.Key {
			table.Columns[k].Nullable = false
		}
	}
	named := cols.Names != nil || len(cols.Types) == 0
	if named && b.sequence(table) {
		return nil, nil
	}
	switch {
	case !named:
		if err := b.name(table, cols, n, joined, b.hides()); err != nil {
			return nil, err
		}
		if b.sequence(table) {
			return nil, nil
		}
	case b.opt.View != nil:
		def, err := b.opt.View.enrichment(n)
		if err != nil {
			return nil, fmt.Errorf("table %s: asking information_schema: %w", n, err)
		}
		state, _ := b.opt.View.def(n)
		b.enrich(table, def, joined, state == ddl.Known)
	}
	if b.opt.MariaDB && b.opt.View != nil && !b.opt.AllVersions {
		if err := b.live(table, n, joined); err != nil {
			return nil, err
		}
	}
	if err := table.Compile(); err != nil {
		return nil, stop("the table cannot be decoded", skipRemedy, err)
	}
	return table, nil
}

// joined reports whether the log may be wrong about columns that are NOT NULL, since it says of all that they are nullable: so do MariaDB, and MySQL
// before 8, in a statement that changes a table which it joins as the optional side of an outer join.
func (b *Builder) joined(t *event.Table) bool {
	return (b.opt.MariaDB || b.wrote < 80000) && !slices.ContainsFunc(t.Columns, func(c event.Column) bool { return !c.Nullable })
}

// live has the events of a table WITH SYSTEM VERSIONING show its present rows. That it is one says the history; where that does not know
// the table, nothing is guessed of one that looks like it, since messages and their numbers depend on it (I5, I6).
func (b *Builder) live(t *event.Table, n ddl.Name, joined bool) error {
	end := endColumn(t, joined)
	if end < 0 {
		return nil
	}
	state, def := b.opt.View.def(n)
	if state != ddl.Known {
		var err error
		var unknown *binlog.StopError
		def, err = b.opt.View.resolve(n, "", func(*ddl.Table) error { return nil })
		switch {
		case errors.As(err, &unknown):
			return stop("the table has columns row_start and row_end, and nobody knows any more whether it was one WITH SYSTEM VERSIONING",
				"exclude the table, or move the cursor behind its rows with: binlogmq cursor set", unknown.Err)
		case err != nil:
			return fmt.Errorf("table %s: asking information_schema: %w", n, err)
		}
	}
	if def.Versioned {
		presentRows(t, end)
	}
	return nil
}

// endColumn returns the column that says until when a row is valid if the table looks like one WITH SYSTEM VERSIONING, else -1.
func endColumn(t *event.Table, joined bool) int {
	index := func(name string) int {
		return slices.IndexFunc(t.Columns, func(c event.Column) bool {
			return c.Name == name && (joined || !c.Nullable) && (c.Type == event.TypeTimestamp2 && c.Meta == 6 || c.Type == event.TypeTimestamp)
		})
	}
	if index("row_start") < 0 {
		return -1
	}
	return index("row_end")
}

// presentRows has the table's events show its present rows.
func presentRows(t *event.Table, end int) {
	t.RowEnd = end + 1
	t.Key = slices.DeleteFunc(slices.Clone(t.Key), func(k int) bool { return k == end })
}

// name gives the columns of a table the names that they had where the reader stands (I6).
func (b *Builder) name(table *event.Table, cols *binlog.Columns, n ddl.Name, joined bool, hides hiding) error {
	full := FullMetadata(b.opt.MariaDB, b.opt.Version)
	const behind = " (rows logged before that cannot be read: then move the cursor behind them with: binlogmq cursor set)"
	if b.opt.From == FromLog || b.opt.View == nil {
		return stop("the log has no column names", full+behind, nil)
	}
	remedy := full + behind
	state, def := b.opt.View.def(n)
	if state != ddl.Known {
		_, err := b.opt.View.resolve(n, remedy, func(d *ddl.Table) error {
			trial := *table
			trial.Columns = slices.Clone(table.Columns)
			if err := b.adopt(&trial, cols, d, joined, hides, remedy); err != nil {
				return err
			}
			def = d
			return nil
		})
		if err != nil {
			return err
		}
	}
	return b.adopt(table, cols, def, joined, hides, "it was altered where the log does not show it (sql_log_bin=0, or statements that were skipped): if its present columns are those of these rows, "+
		"have them looked up again with: binlogmq schema forget; to be safe from now on "+full)
}

// hiding says which of a table's hidden columns are not in the log.
type hiding uint8

const (
	hidesSome hiding = iota
	hidesNone
	hidesAll
	hidesAllOrNone
)

// hides tells which hidden columns the server that wrote a TABLE_MAP keeps back. MariaDB loses some when it alters a table. MySQL has begun to log none at
// some version after 8.0.36. I6: the fewer counts fit, the surer is a column that was dropped unseen noticed by them.
func (b *Builder) hides() hiding {
	switch {
	case b.opt.MariaDB:
		return hidesSome
	case b.wrote <= 80036:
		return hidesNone
	case b.wrote >= 90700:
		return hidesAll
	}
	return hidesAllOrNone
}

// columns fills the columns with what the TABLE_MAP says.
func (b *Builder) columns(table *event.Table, cols *binlog.Columns) error {
	meta := cols.Meta
	var numeric, character, member, enum, set int
	for i, typ := range cols.Types {
		c := &table.Columns[i]
		real, m, n, err := event.NormalizeType(typ, meta)
		if err != nil {
			return stop(fmt.Sprintf("column %d%s cannot be decoded", i+1, nameOf(cols, i)), skipRemedy, err)
		}
		meta = meta[n:]
		c.Type, c.Meta = real, m
		c.Nullable = cols.Nullable[i/8]>>(i%8)&1 != 0
		if cols.Names != nil {
			c.Name = text(cols.Names[i])
		}
		if cols.Visible != nil {
			c.Invisible = cols.Visible[i/8]<<(i%8)&0x80 == 0
		}
		switch {
		case isNumeric(real):
			if cols.Unsigned != nil {
				if numeric/8 >= len(cols.Unsigned) {
					return missing("signedness")
				}
				c.Unsigned = cols.Unsigned[numeric/8]<<(numeric%8)&0x80 != 0
			}
			numeric++
		case real == event.TypeEnum || real == event.TypeSet:
			var lists [][][]byte
			var at int
			if real == event.TypeEnum {
				lists, at = cols.EnumMembers, enum
				enum++
			} else {
				lists, at = cols.SetMembers, set
				set++
			}
			if err := b.collation(c, cols.MemberDefault, cols.MemberCharset, member, "ENUM and SET charsets"); err != nil {
				return err
			}
			member++
			if lists != nil {
				if at >= len(lists) {
					return missing("ENUM and SET members")
				}
				if err := members(c, lists[at]); err != nil {
					return err
				}
			}
		case b.isCharacter(real):
			if err := b.collation(c, cols.DefaultCharset, cols.ColumnCharset, character, "charsets"); err != nil {
				return err
			}
			character++
		}
	}
	if len(meta) > 0 {
		return fmt.Errorf("%w: table map: %d bytes of column metadata too many", binlog.ErrMalformed, len(meta))
	}
	for _, k := range cols.Key {
		table.Key = append(table.Key, k.Column)
	}
	// MariaDB keeps the hash of a long unique key in a hidden column, and MySQL an expression of an index, which newer versions do not log.
	for i := range table.Columns {
		c := &table.Columns[i]
		if b.opt.MariaDB && strings.HasPrefix(c.Name, "DB_ROW_HASH_") && c.Type == event.TypeLongLong || !b.opt.MariaDB && strings.HasPrefix(c.Name, "!hidden!") {
			c.Invisible, c.Hidden = true, true
		}
	}
	return nil
}

func nameOf(cols *binlog.Columns, i int) string {
	if cols.Names == nil {
		return ""
	}
	return fmt.Sprintf(" %q", cols.Names[i])
}

func missing(what string) error {
	return fmt.Errorf("%w: table map: too few %s", binlog.ErrMalformed, what)
}

// text makes valid UTF-8 of a name; names are UTF-8 in the log.
func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func isNumeric(t byte) bool {
	switch t {
	case event.TypeTiny, event.TypeShort, event.TypeInt24, event.TypeLong, event.TypeLongLong, event.TypeNewDecimal, event.TypeFloat, event.TypeDouble, event.TypeYear:
		return true
	}
	return false
}

// isCharacter reports whether the server counts columns of the type among those that have a charset
// in the TABLE_MAP. MySQL 9 counts VECTOR, MariaDB GEOMETRY and its COMPRESSED types.
func (b *Builder) isCharacter(t byte) bool {
	switch t {
	case event.TypeString, event.TypeVarchar, event.TypeBlob:
		return true
	case event.TypeVector:
		return !b.opt.MariaDB
	case event.TypeGeometry, event.TypeBlobCompressed, event.TypeVarcharCompressed:
		return b.opt.MariaDB
	}
	return false
}

func (b *Builder) collation(c *event.Column, def *binlog.Charsets, list []uint32, i int, what string) error {
	switch {
	case def != nil:
		c.Collation = def.Of(i)
	case list != nil:
		if i >= len(list) {
			return missing(what)
		}
		c.Collation = list[i]
	default:
		return nil
	}
	if c.Type == event.TypeVector || c.Type == event.TypeGeometry {
		return nil
	}
	if c.Collation == 63 {
		c.Charset = "binary"
		return nil
	}
	name, ok := b.opt.Charsets[c.Collation]
	if !ok {
		return stop(fmt.Sprintf("column %q has collation %d, which the source does not list", c.Name, c.Collation), skipRemedy, nil)
	}
	c.Charset = name
	return nil
}

func members(c *event.Column, list [][]byte) error {
	c.Members = make([]string, len(list))
	charset := c.Charset
	for i, m := range list {
		if charset == "" || charset == "binary" {
			c.Members[i] = string(m)
			continue
		}
		u, err := event.AppendUTF8(nil, charset, m)
		if err != nil {
			return stop(fmt.Sprintf("the labels of column %q cannot be decoded", c.Name), skipRemedy, err)
		}
		c.Members[i] = string(u)
	}
	return nil
}

// sequenceColumns are the columns of every MariaDB SEQUENCE (sql_sequence.cc).
var sequenceColumns = []string{"next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option", "cycle_count"}

// sequence reports whether the table is a MariaDB SEQUENCE, whose one row is
// the server's bookkeeping and not data. The log shows it like a table, so it is known by
// its columns: a pure function of the TABLE_MAP, as ordinals must not depend on what exists now.
func (b *Builder) sequence(t *event.Table) bool {
	return b.opt.MariaDB && len(t.Columns) == len(sequenceColumns) && slices.EqualFunc(t.Columns, sequenceColumns, func(c event.Column, name string) bool {
		return c.Name == name && (c.Type == event.TypeLongLong || c.Type == event.TypeTiny || isNumeric(c.Type))
	})
}

// enrich adds what is known beyond the TABLE_MAP, a column at a time and only where name and type agree. joined is as of [Builder.joined];
// proven says that the definition holds here, so that it may say what the log then does not: which columns are NOT NULL (I6).
func (b *Builder) enrich(t *event.Table, def *ddl.Table, joined, proven bool) {
	if def == nil {
		return
	}
	byName := make(map[string]*ddl.Column, len(def.Columns))
	for i := range def.Columns {
		byName[def.Columns[i].Name] = &def.Columns[i]
	}
	for i := range t.Columns {
		c := &t.Columns[i]
		k := byName[c.Name]
		c.Hidden = c.Hidden && (k == nil || k.Hidden != "") // a user's own column may have such a name
		if k == nil || k.Hidden != "" || disagree(c, k, joined) != "" {
			continue
		}
		b.apply(c, k, joined && proven)
	}
}

func (b *Builder) apply(c *event.Column, k *ddl.Column, joined bool) {
	if joined && !k.AsLogged {
		c.Nullable = k.Nullable
	}
	if b.opt.MariaDB && k.Virtual {
		c.Virtual = event.VirtualLogged
		if b.wrote < 100500 {
			c.Virtual = event.VirtualNull
		}
	}
	// Some servers show the labels of ENUM and SET in bytes of the column's charset; Compile derives the type from Members.
	if len(c.Members) == 0 {
		// MariaDB writes "varchar(20) /*M!100301 COMPRESSED*/".
		c.SQLType, _, _ = strings.Cut(k.SQLType, " /*")
	}
	switch {
	case k.DataType == "uuid":
		c.Logical = event.LogicalUUID
	case k.DataType == "inet4":
		c.Logical = event.LogicalINET4
	case k.DataType == "inet6":
		c.Logical = event.LogicalINET6
	case k.DataType == "vector" && c.Type == event.TypeVarchar: // MariaDB
		c.Logical = event.LogicalVector
	case k.JSON:
		c.Logical = event.LogicalJSON
	case c.Type == event.TypeTiny && strings.HasPrefix(k.SQLType, "tinyint(1)"):
		c.Logical = event.LogicalBool
	}
}

// adopt gives the columns the names of a definition, and whatever else the
// TABLE_MAP lacks, if every column agrees (I6).
func (b *Builder) adopt(t *event.Table, cols *binlog.Columns, def *ddl.Table, joined bool, hides hiding, remedy string) error {
	info := def.Columns
	for hides != hidesNone && len(info) > 0 && (len(info) > len(t.Columns) || hides == hidesAll) && info[len(info)-1].Hidden != "" { // they stand last
		info = info[:len(info)-1]
	}
	if n := len(info); hides == hidesAllOrNone && n < len(def.Columns) && n > 0 && info[n-1].Hidden != "" {
		info = def.Columns
	}
	if len(info) != len(t.Columns) {
		return stop(fmt.Sprintf("the log shows %d columns, the known definition %d", len(t.Columns), len(info)), remedy, nil)
	}
	for i := range t.Columns {
		c, k := &t.Columns[i], &info[i]
		if why := disagree(c, k, joined); why != "" {
			return stop(fmt.Sprintf("column %d (%s %s in the known definition) is another one in the log: %s", i+1, k.Name, k.SQLType, why), remedy, nil)
		}
		c.Name = k.Name
		c.Invisible, c.Hidden = k.Invisible, k.Hidden != ""
		if isNumeric(c.Type) && cols.Unsigned == nil {
			c.Unsigned = strings.Contains(k.SQLType, "unsigned") || strings.Contains(k.SQLType, "zerofill")
		}
		if c.Charset == "" && c.Type != event.TypeVector && c.Type != event.TypeGeometry {
			switch {
			case k.Charset != "":
				c.Charset = k.Charset
			case b.isCharacter(c.Type), c.Type == event.TypeEnum, c.Type == event.TypeSet:
				c.Charset, c.Collation = "binary", 63
			}
		}
		if (c.Type == event.TypeEnum || c.Type == event.TypeSet) && c.Members == nil {
			if k.Members == nil {
				return stop(fmt.Sprintf("the labels of column %s cannot be read from %q", k.Name, k.SQLType), "give the column labels that its character set has, or exclude the table", nil)
			}
			c.Members = k.Members
		}
		b.apply(c, k, joined)
	}
	if cols.Key == nil {
		t.Key = nil
		for n := 1; ; n++ {
			i := slices.IndexFunc(info, func(k ddl.Column) bool { return k.Key == n })
			if i < 0 {
				break
			}
			t.Key = append(t.Key, i)
		}
		end := slices.IndexFunc(info, func(k ddl.Column) bool { return k.RowEnd })
		if def.Versioned && end >= 0 && len(t.Key) > 0 && !slices.Contains(t.Key, end) {
			t.Key = append(t.Key, end) // as the log's own key has it; statements do not say so
		}
	}
	return nil
}

// disagree tells why a column of the log cannot be that of a definition; "" if it can. Of a joined one the log does not say whether it is NOT NULL.
func disagree(c *event.Column, k *ddl.Column, joined bool) string {
	if k.Hidden != "" {
		return "" // its type is that of an expression
	}
	if c.Nullable != k.Nullable && !k.AsLogged && !joined {
		return "one of them is NOT NULL"
	}
	is := func(names ...string) bool { return slices.Contains(names, k.DataType) }
	unless := func(ok bool) string {
		if ok {
			return ""
		}
		return fmt.Sprintf("type code %d with metadata %d", c.Type, c.Meta)
	}
	switch c.Type {
	case event.TypeTiny:
		return unless(is("tinyint"))
	case event.TypeShort:
		return unless(is("smallint"))
	case event.TypeInt24:
		return unless(is("mediumint"))
	case event.TypeLong:
		return unless(is("int"))
	case event.TypeLongLong:
		return unless(is("bigint"))
	case event.TypeFloat:
		return unless(is("float"))
	case event.TypeDouble:
		return unless(is("double"))
	case event.TypeNewDecimal:
		return unless(is("decimal") && uint64(c.Meta>>8) == k.Precision && uint64(c.Meta&0xff) == k.Scale)
	case event.TypeYear:
		return unless(is("year"))
	case event.TypeDate:
		return unless(is("date"))
	case event.TypeTime:
		return unless(is("time"))
	case event.TypeDatetime:
		return unless(is("datetime"))
	case event.TypeTimestamp:
		return unless(is("timestamp"))
	case event.TypeTime2:
		return unless(is("time") && uint64(c.Meta) == k.Fraction)
	case event.TypeDatetime2:
		return unless(is("datetime") && uint64(c.Meta) == k.Fraction)
	case event.TypeTimestamp2:
		return unless(is("timestamp") && uint64(c.Meta) == k.Fraction)
	case event.TypeBit:
		return unless(is("bit") && uint64(c.Meta) == k.Precision)
	case event.TypeEnum:
		return unless(is("enum"))
	case event.TypeSet:
		return unless(is("set"))
	case event.TypeString:
		switch k.DataType {
		case "uuid", "inet6":
			return unless(c.Meta == 16)
		case "inet4":
			return unless(c.Meta == 4)
		}
		return unless(is("char", "binary") && uint64(c.Meta) == k.Octets && agreeBinary(c, k, "binary"))
	case event.TypeVarchar:
		if k.DataType == "vector" { // MariaDB
			return ""
		}
		return unless(is("varchar", "varbinary") && uint64(c.Meta) == k.Octets && agreeBinary(c, k, "varbinary"))
	case event.TypeVarcharCompressed:
		return unless(is("varchar", "varbinary"))
	case event.TypeBlob, event.TypeBlobCompressed:
		return unless(blobs[k.DataType] == c.Meta && (c.Charset == "" || (c.Charset == "binary") == strings.HasSuffix(k.DataType, "blob")))
	case event.TypeJSON:
		return unless(is("json"))
	case event.TypeVector:
		return unless(is("vector"))
	case event.TypeGeometry:
		return unless(is("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection", "geomcollection"))
	}
	return unless(false)
}

// blobs gives the bytes of the length of a value. MariaDB's JSON may be told as what it is.
var blobs = map[string]uint16{"tinytext": 1, "tinyblob": 1, "text": 2, "blob": 2, "mediumtext": 3, "mediumblob": 3, "longtext": 4, "longblob": 4, "json": 4}

func agreeBinary(c *event.Column, k *ddl.Column, bin string) bool {
	return c.Charset == "" || (c.Charset == "binary") == (k.DataType == bin)
}

// ParseMembers reads the labels of an ENUM or SET from its COLUMN_TYPE.
func ParseMembers(sqlType string) ([]string, bool) {
	i := strings.IndexByte(sqlType, '(')
	if i < 0 {
		return nil, false
	}
	b := sqlType[i+1:]
	var out []string
	for {
		// MySQL shows labels of bytes so that are no text.
		inHex := strings.HasPrefix(b, "x'")
		if inHex {
			b = b[1:]
		}
		if len(b) == 0 || b[0] != '\'' {
			return nil, false
		}
		var label []byte
		n, closed := 1, false
		for ; n < len(b) && !closed; n++ {
			switch x := b[n]; {
			case x == '\\' && n+1 < len(b): // the server escapes these only: NUL, the ends of lines, and itself
				n++
				if at := strings.IndexByte("0nr", b[n]); at >= 0 {
					label = append(label, "\x00\n\r"[at])
				} else {
					label = append(label, b[n])
				}
			case x != '\'':
				label = append(label, x)
			case n+1 < len(b) && b[n+1] == '\'':
				label = append(label, x)
				n++
			default:
				closed = true
			}
		}
		if !closed || n == len(b) {
			return nil, false
		}
		if inHex {
			var err error
			if label, err = hex.DecodeString(string(label)); err != nil {
				return nil, false
			}
		}
		out = append(out, string(label))
		end := b[n]
		b = b[n+1:]
		switch end {
		case ',':
		case ')':
			return out, true
		default:
			return nil, false
		}
	}
}
