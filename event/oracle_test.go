//go:build integration

package event

import (
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/binlogmq/binlogmq/internal/testenv"
	"github.com/binlogmq/binlogmq/internal/testenv/sqlvalues"
)

func selectShown(t *testing.T, s *testenv.Server, table *Table) [][]string {
	t.Helper()
	var list []string
	for i := range table.Columns {
		list = append(list, sqlvalues.Shown(s.Kind, table.Columns[i].Name, table.Columns[i].SQLType))
	}
	rows := s.Query(fmt.Sprintf("SELECT %s FROM `%s`.`%s` ORDER BY id", strings.Join(list, ","), table.Schema, table.Name))
	for _, r := range rows {
		for i := range r {
			if r[i] != "NULL" {
				b, err := hex.DecodeString(r[i])
				if err != nil {
					t.Fatal(err)
				}
				r[i] = string(b)
			}
		}
	}
	return rows
}

func texts(t *testing.T, values []Value) []string {
	t.Helper()
	out := make([]string, len(values))
	for i, v := range values {
		switch {
		case v.IsAbsent():
			out[i] = "absent"
		case v.IsNull():
			out[i] = "NULL"
		default:
			b, err := v.AppendText(nil)
			if err != nil {
				t.Error(err)
			}
			out[i] = string(b)
		}
	}
	return out
}

func compareRow(t *testing.T, table *Table, what string, got, want []string) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] && !sqlvalues.Same(table.Columns[i].SQLType, got[i], want[i]) {
			t.Errorf("%s, column %s (%s): got %.300q, the server shows %.300q", what, table.Columns[i].Name, table.Columns[i].SQLType, got[i], want[i])
		}
	}
}

// collect scans the events into before and after texts, one entry a row change.
func collect(t *testing.T, events []captured) (table *Table, before, after [][]string) {
	t.Helper()
	var s Scanner
	for _, e := range events {
		table = e.Table
		s.Reset(e.Event)
		for s.Next() {
			r := s.Row()
			if r.Before != nil {
				before = append(before, texts(t, r.Before))
			}
			if r.After != nil {
				after = append(after, texts(t, r.After))
			}
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
	}
	return table, before, after
}

// TestEveryTypeAsServer proves that every type's edge and random values read
// from the binlog are what SELECT shows, in all images.
func TestEveryTypeAsServer(t *testing.T) {
	for _, kind := range []string{"mysql", "mariadb", "mariadb11", "mariadb114", "mysql56", "mariadb102"} {
		t.Run(kind, func(t *testing.T) {
			s := testenv.MySQL(t, kind)
			t.Log(s.Query("SELECT VERSION()"))
			db := s.Database()
			columns := sqlvalues.Columns(kind)
			for _, c := range sqlvalues.Characters(kind, sqlvalues.Charsets(s.Query(sqlvalues.CharsetsQuery))) {
				if strings.HasPrefix(c.Name, "v_") {
					columns = append(columns, c)
				}
			}
			everyType(t, s, db, columns, 150)
		})
	}
}

// TestOldTemporalsAsServer proves the same for MariaDB's temporal types from
// before mysql56_temporal_format, whose fractions only information_schema knows.
func TestOldTemporalsAsServer(t *testing.T) {
	s := testenv.NewMySQL(t, "mariadb", "--mysql56-temporal-format=OFF")
	everyType(t, s, s.Database(), sqlvalues.Temporals(s.Kind), 300)
}

func everyType(t *testing.T, s *testenv.Server, db string, columns []sqlvalues.Column, random int) {
	for _, q := range sqlvalues.Session(s.Kind) {
		s.Exec(q)
	}
	// Tables of 40 columns keep rows within the server's limits.
	for part := 0; len(columns) > 0; part++ {
		n := min(40, len(columns))
		cols := columns[:n]
		columns = columns[n:]
		name := fmt.Sprintf("t%d", part)
		decl := []string{"id int primary key", "touched int null"}
		for _, c := range cols {
			decl = append(decl, fmt.Sprintf("`%s` %s null", c.Name, c.Decl))
		}
		s.Exec(fmt.Sprintf("CREATE TABLE %s.%s (%s) CHARACTER SET utf8mb4", db, name, strings.Join(decl, ",")))
		r := rand.New(rand.NewPCG(1, uint64(part)))
		events := capture(t, s, db, func() {
			rows := random
			for _, c := range cols {
				rows = max(rows, len(c.Edges))
			}
			for i := range rows {
				values := []string{fmt.Sprint(i + 1), "0"}
				for _, c := range cols {
					v := "NULL"
					if i < len(c.Edges) {
						v = c.Edges[i]
					} else if c.Random != nil && r.IntN(8) > 0 {
						v = c.Random(r)
					}
					values = append(values, v)
				}
				s.Exec(fmt.Sprintf("INSERT INTO %s.%s VALUES (%s)", db, name, strings.Join(values, ",")))
			}
		})
		table, _, inserted := collect(t, events)
		want := selectShown(t, s, table)
		if len(inserted) != len(want) || len(want) == 0 {
			t.Fatalf("%s: %d rows inserted, %d shown", name, len(inserted), len(want))
		}
		for i := range want {
			compareRow(t, table, fmt.Sprintf("%s insert %d", name, i+1), inserted[i], want[i])
		}
		compareOracle(t, events)
		for i := range table.Columns {
			checkSQLType(t, &table.Columns[i])
		}
		// Updates and deletes show the same values.
		_, before, after := collect(t, capture(t, s, db, func() {
			s.Exec(fmt.Sprintf("UPDATE %s.%s SET touched=1 ORDER BY id", db, name))
		}))
		want = selectShown(t, s, table)
		if len(after) != len(want) {
			t.Fatalf("%s: %d rows updated, %d shown", name, len(after), len(want))
		}
		for i := range want {
			compareRow(t, table, fmt.Sprintf("%s update after %d", name, i+1), after[i], want[i])
			compareRow(t, table, fmt.Sprintf("%s update before %d", name, i+1), before[i], inserted[i])
		}
		_, before, _ = collect(t, capture(t, s, db, func() {
			s.Exec(fmt.Sprintf("DELETE FROM %s.%s ORDER BY id", db, name))
		}))
		for i := range want {
			compareRow(t, table, fmt.Sprintf("%s delete %d", name, i+1), before[i], want[i])
		}
	}
}

// TestImagesAsServer proves for images that leave columns out that what is
// there is right and what is not there is absent, never NULL.
func TestImagesAsServer(t *testing.T) {
	minimal := `insert > 1|a|-|-
insert > 2|-|-|-
insert > 3|c|3|ccc
update 3|-|-|- > -|b|NULL|-
update 1|-|-|- > -|b|-|-
delete 3|-|-|-`
	noblob := `insert > 1|a|NULL|-
insert > 2|NULL|NULL|-
insert > 3|c|3|ccc
update 3|c|3|- > 3|b|NULL|-
update 1|a|NULL|- > 1|b|NULL|-
delete 3|b|NULL|-`
	noDup := `insert > 1|a|NULL|NULL
insert > 2|NULL|NULL|NULL
insert > 3|c|3|ccc
update 3|c|3|ccc > -|b|NULL|-
update 1|a|NULL|NULL > -|b|-|-
delete 3|b|NULL|ccc`
	for _, c := range []struct{ kind, image, want string }{
		{"mysql", "MINIMAL", minimal},
		{"mysql", "NOBLOB", noblob},
		{"mariadb", "MINIMAL", minimal},
		{"mariadb", "NOBLOB", noblob},
		{"mariadb11", "MINIMAL", minimal},
		{"mariadb11", "FULL_NODUP", noDup},
	} {
		t.Run(c.kind+"/"+c.image, func(t *testing.T) {
			s := testenv.MySQL(t, c.kind)
			db := s.Database()
			s.Exec("CREATE TABLE " + db + ".t (id int primary key, a varchar(10), b int, c text) CHARACTER SET utf8mb4")
			s.Exec("SET SESSION binlog_row_image=" + c.image)
			defer s.Exec("SET SESSION binlog_row_image=FULL")
			events := capture(t, s, db, func() {
				s.Exec("INSERT INTO " + db + ".t (id,a) VALUES (1,'a')")
				s.Exec("INSERT INTO " + db + ".t (id) VALUES (2)")
				s.Exec("INSERT INTO " + db + ".t VALUES (3,'c',3,'ccc')")
				s.Exec("UPDATE " + db + ".t SET a='b', b=NULL WHERE id=3")
				s.Exec("UPDATE " + db + ".t SET a='b' WHERE id=1")
				s.Exec("DELETE FROM " + db + ".t WHERE id=3")
			})
			var got []string
			var sc Scanner
			for _, e := range events {
				sc.Reset(e.Event)
				for sc.Next() {
					r := sc.Row()
					line := r.Op.String()
					if r.Before != nil {
						line += " " + rowText(t, r.Before)
					}
					if r.After != nil {
						line += " > " + rowText(t, r.After)
					}
					got = append(got, line)
				}
				if sc.Err() != nil {
					t.Fatal(sc.Err())
				}
			}
			if strings.Join(got, "\n") != c.want {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
			}
		})
	}
}

// TestJSONInPlaceAsServer covers documents with gaps, which updates in place
// leave, and the empty document.
func TestJSONInPlaceAsServer(t *testing.T) {
	s := testenv.MySQL(t, "mysql")
	db := s.Database()
	s.Exec("SET NAMES utf8mb4, sql_mode=''")
	s.Exec("CREATE TABLE " + db + ".t (id int primary key, j json not null)")
	events := capture(t, s, db, func() {
		s.Exec("INSERT INTO " + db + `.t VALUES (1,'{"a":"a long text to begin with","b":[1,2,3.5],"c":{"d":"x"}}'),(2,JSON_OBJECT('big',REPEAT('x',70000),'n',70000,'s','abc'))`)
		s.Exec("INSERT IGNORE INTO " + db + ".t (id) VALUES (3)")
		s.Exec("INSERT IGNORE INTO " + db + ".t VALUES (4,'1'),(5,NULL)")
	})
	update := func() [][]string {
		events = append(events, capture(t, s, db, func() {
			s.Exec("UPDATE " + db + ".t SET j=JSON_REPLACE(j,'$.a','xy','$.n',1,'$.s','z')")
			s.Exec("UPDATE " + db + ".t SET j=JSON_REMOVE(JSON_REPLACE(j,'$.b[2]',7),'$.c')")
		})...)
		return s.Query("SELECT id, CAST(j AS CHAR) FROM " + db + ".t ORDER BY id")
	}
	want := map[string]string{}
	for _, r := range update() {
		want[r[0]] = r[1]
	}
	got := map[string]string{}
	_, _, after := collect(t, events)
	for _, r := range after {
		got[r[0]] = r[1]
	}
	if len(want) < 4 || !maps.Equal(got, want) {
		t.Errorf("got %.1000q\nwant %.1000q", got, want)
	}
}

// TestPartialJSONAsServer proves that differences give the documents that the
// server has.
func TestPartialJSONAsServer(t *testing.T) {
	s := testenv.MySQL(t, "mysql")
	db := s.Database()
	s.Exec("SET NAMES utf8mb4, SESSION binlog_row_value_options=PARTIAL_JSON")
	defer s.Exec("SET SESSION binlog_row_value_options=''")
	s.Exec("CREATE TABLE " + db + ".t (id int primary key, j json, n int, k json, txt varchar(10), l json)")
	r := rand.New(rand.NewPCG(3, 4))
	pad := strings.Repeat("x", 300)
	const rows = 6
	for i := range rows {
		doc := fmt.Sprintf(`{"pad":"%s","a":[1,2,3,{"b":"c","":0}],"o":{"p":{"q":1.5,"r":null}},"odd key \"é.[":%d,"t":[[],{}]}`, pad, i)
		if i == 5 {
			doc = fmt.Sprintf(`{"pad":"%s","a":[1,2,3],"o":{"p":{}},"t":[]}`, strings.Repeat(pad, 300)) // large
		}
		s.Exec(fmt.Sprintf("INSERT INTO %s.t VALUES (%d,%s,0,%s,'',NULL)", db, i, sqlvalues.Quote(doc), sqlvalues.Quote(doc)))
	}
	path := func() string {
		return sqlvalues.Quote("$" + sqlvalues.Pick(r, ".a", ".a[0]", ".a[3].b", `.a[3].""`, ".o", ".o.p.q", ".o.p.new", `."odd key \"é.["`, ".t[0][0]", ".t[1].x", ".a[last]", ".new", ".nn", `."a b"`, ".a[100]", ".o.p", ".t"))
	}
	value := func() string {
		return sqlvalues.Pick(r, "1", "-70000", "1.25", "'text é'", "NULL", "true", "CAST('[1,{\"x\":2}]' AS JSON)", "REPEAT('y',200)", "CAST('2020-01-02' AS DATE)", "18446744073709551615", "JSON_OBJECT()", "CAST(x'cafe' AS BINARY)")
	}
	expression := func(column string) string {
		e := column
		for range 1 + r.IntN(3) {
			switch r.IntN(3) {
			case 0:
				e = fmt.Sprintf("JSON_SET(%s,%s,%s)", e, path(), value())
			case 1:
				e = fmt.Sprintf("JSON_REPLACE(%s,%s,%s,%s,%s)", e, path(), value(), path(), value())
			default:
				e = fmt.Sprintf("JSON_REMOVE(%s,%s)", e, path())
			}
		}
		return e
	}
	partial, rowsSeen := 0, 0
	for round := range 70 {
		image := sqlvalues.Pick(r, "FULL", "FULL", "NOBLOB", "MINIMAL")
		set := sqlvalues.Pick(r, "j="+expression("j"), "k="+expression("k")+",n=n+1", "j="+expression("j")+",k="+expression("k"), "txt='z"+fmt.Sprint(round)+"'", "k="+expression("k")+",l=j")
		s.Exec("SET SESSION binlog_row_image=" + image)
		before := s.Query("SELECT id, CAST(j AS CHAR), n, CAST(k AS CHAR), txt, CAST(l AS CHAR) FROM " + db + ".t ORDER BY id")
		events := capture(t, s, db, func() { s.Exec("UPDATE " + db + ".t SET " + set) })
		after := s.Query("SELECT id, CAST(j AS CHAR), n, CAST(k AS CHAR), txt, CAST(l AS CHAR) FROM " + db + ".t ORDER BY id")
		var sc Scanner
		for _, e := range events {
			if e.Partial {
				partial++
			}
			sc.Reset(e.Event)
			for sc.Next() {
				rowsSeen++
				row := sc.Row()
				id := texts(t, row.Before)[0]
				for i := range after {
					if after[i][0] != id {
						continue
					}
					for j, got := range texts(t, row.After) {
						if got != after[i][j] && !row.After[j].IsAbsent() {
							t.Errorf("%s %s: column %d of row %s:\n got %.500s\nwant %.500s\n was %.500s", image, set, j+1, id, got, after[i][j], before[i][j])
						}
					}
				}
			}
			if sc.Err() != nil && (image == "FULL" || !strings.Contains(sc.Err().Error(), "binlog_row_image=FULL")) {
				t.Fatalf("%s %s: %v", image, set, sc.Err())
			}
		}
		if t.Failed() {
			break
		}
	}
	s.Exec("SET SESSION binlog_row_image=FULL")
	t.Logf("%d of the events were partial, %d rows read", partial, rowsSeen)
	if partial < 30 || rowsSeen < 100 {
		t.Errorf("only %d events were partial, %d rows read", partial, rowsSeen)
	}
}

// compareOracle compares with go-mysql's decoder where that one is right.
func compareOracle(t *testing.T, events []captured) {
	t.Helper()
	var s Scanner
	compared := 0
	for _, e := range events {
		if e.oracle == nil || len(e.oracle.Rows) != int(e.Rows) {
			continue
		}
		s.Reset(e.Event)
		for i := 0; s.Next(); i++ {
			for j, v := range s.Row().Values() {
				c := v.Column()
				theirs := e.oracle.Rows[i][j]
				if v.IsNull() != (theirs == nil) {
					t.Errorf("%s: null %t, go-mysql %v", c.Name, v.IsNull(), theirs)
				}
				if theirs == nil {
					continue
				}
				switch c.Class {
				case ClassInt, ClassUint, ClassDecimal, ClassDate, ClassDatetime:
				case ClassTimestamp:
					if strings.HasPrefix(fmt.Sprint(theirs), "0000") {
						continue
					}
				default:
					continue
				}
				if c.Class == ClassInt || c.Class == ClassUint {
					// go-mysql knows no signedness without metadata.
					if fmt.Sprint(theirs)[0] == '-' && c.Class == ClassUint {
						continue
					}
				}
				compared++
				if got, err := v.AppendText(nil); err != nil || string(got) != fmt.Sprint(theirs) {
					t.Errorf("%s (%s): %s, go-mysql has %v (%v)", c.Name, c.SQLType, got, theirs, err)
				}
			}
		}
	}
	t.Logf("%d values agree with go-mysql", compared)
}

// checkSQLType compares the derived type with information_schema's.
func checkSQLType(t *testing.T, c *Column) {
	t.Helper()
	want := c.SQLType
	switch c.Class {
	case ClassInt, ClassUint, ClassYear:
		if i, j := strings.IndexByte(want, '('), strings.IndexByte(want, ')'); i > 0 {
			want = want[:i] + want[j+1:] // display width
		}
		want = strings.TrimSuffix(want, " zerofill")
	case ClassFloat, ClassDouble:
		if i, j := strings.IndexByte(want, '('), strings.IndexByte(want, ')'); i > 0 {
			want = want[:i] + want[j+1:]
		}
	case ClassGeometry:
		want = "geometry"
	case ClassVector:
		if c.Type == TypeVector {
			want = "vector"
		}
	}
	if i := strings.Index(want, " /*"); i > 0 {
		want = want[:i] // MariaDB's COMPRESSED
	}
	if got := derivedSQLType(c); got != want {
		t.Errorf("derived type %q, information_schema says %q", got, want)
	}
}
