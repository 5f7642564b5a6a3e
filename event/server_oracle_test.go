//go:build integration

package event

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/binlogmq/binlogmq/internal/testenv"
)

func exec(t testing.TB, c *client.Conn, sql string) {
	t.Helper()
	if _, err := c.Execute(sql); err != nil {
		t.Fatalf("%v\n%.2000s", err, sql)
	}
}

// A captured rows event next to what go-mysql made of it, nil where it could not.
type captured struct {
	*Event
	oracle *replication.RowsEvent
}

// capture runs write and returns the rows events that the server logged of
// tables of the database, framed by go-mysql, with tables that hold
// what information_schema said after write.
func capture(t testing.TB, s *testenv.Server, database string, write func()) []captured {
	t.Helper()
	show := "SHOW BINARY LOG STATUS"
	flavor := mysql.MySQLFlavor
	if s.MariaDB() {
		show, flavor = "SHOW MASTER STATUS", mysql.MariaDBFlavor
	} else if s.Kind == "mysql56" {
		show = "SHOW MASTER STATUS"
	}
	at := s.Query(show)[0]
	var offset uint32
	fmt.Sscan(at[1], &offset)
	write()
	sentinel := testenv.Name(t)
	s.Exec("CREATE DATABASE " + sentinel)
	s.Exec("DROP DATABASE " + sentinel)

	var host string
	var port uint16
	host, portText, _ := strings.Cut(s.Addr, ":")
	fmt.Sscan(portText, &port)
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 0x70000000 + uint32(time.Now().UnixNano()&0xffffff), Flavor: flavor, Host: host, Port: port,
		User: s.ReplUser, Password: s.ReplPassword, RawModeEnabled: true, DisableRetrySync: true, Logger: slog.New(slog.DiscardHandler),
	})
	defer syncer.Close()
	stream, err := syncer.StartSync(mysql.Position{Name: at[0], Pos: offset})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	parser := replication.NewBinlogParser()
	parser.SetFlavor(flavor)
	parser.SetTimestampStringLocation(time.UTC)
	tables := map[uint64]*Table{}
	var out []captured
	for {
		e, err := stream.GetEvent(ctx)
		if err != nil {
			t.Fatal(err)
		}
		parsed, parseErr := parser.Parse(e.RawData)
		body := e.RawData[19 : len(e.RawData)-4]
		switch e.Header.EventType {
		case replication.QUERY_EVENT:
			if bytes.Contains(body, []byte(sentinel)) {
				return out
			}
		case replication.TABLE_MAP_EVENT:
			id := tableID(body)
			delete(tables, id)
			if table := readTableMap(t, body); table.Schema == database {
				describe(t, s, table)
				if err := table.Compile(); err != nil {
					t.Fatal(err)
				}
				tables[id] = table
			}
		case replication.WRITE_ROWS_EVENTv1, replication.UPDATE_ROWS_EVENTv1, replication.DELETE_ROWS_EVENTv1,
			replication.WRITE_ROWS_EVENTv2, replication.UPDATE_ROWS_EVENTv2, replication.DELETE_ROWS_EVENTv2,
			replication.PARTIAL_UPDATE_ROWS_EVENT:
			table := tables[tableID(body)]
			if table == nil {
				continue
			}
			c := captured{Event: readRows(t, table, e.Header.EventType, body)}
			if parseErr == nil {
				c.oracle = parsed.Event.(*replication.RowsEvent)
			}
			out = append(out, c)
		}
	}
}

func tableID(body []byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(body)) | uint64(binary.LittleEndian.Uint16(body[4:]))<<32
}

func lenenc(b []byte) (int, []byte) {
	switch b[0] {
	case 0xfc:
		return int(binary.LittleEndian.Uint16(b[1:])), b[3:]
	case 0xfd:
		return int(b[1]) | int(b[2])<<8 | int(b[3])<<16, b[4:]
	case 0xfe:
		return int(binary.LittleEndian.Uint64(b[1:])), b[9:]
	}
	return int(b[0]), b[1:]
}

// readTableMap reads names, types and metadata of a TABLE_MAP event's body.
func readTableMap(t testing.TB, b []byte) *Table {
	t.Helper()
	table := &Table{}
	b = b[8:]
	table.Schema, b = string(b[1:1+int(b[0])]), b[2+int(b[0]):]
	table.Name, b = string(b[1:1+int(b[0])]), b[2+int(b[0]):]
	n, b := lenenc(b)
	types, b := b[:n], b[n:]
	size, b := lenenc(b)
	meta, b := b[:size], b[size:]
	for i, typ := range types {
		real, m, used, err := NormalizeType(typ, meta)
		if err != nil {
			t.Fatalf("%s.%s column %d: %v", table.Schema, table.Name, i+1, err)
		}
		meta = meta[used:]
		table.Columns = append(table.Columns, Column{Type: real, Meta: m, Nullable: b[i/8]>>(i%8)&1 != 0})
	}
	if len(meta) != 0 {
		t.Fatalf("%s.%s: %d bytes of metadata are left", table.Schema, table.Name, len(meta))
	}
	return table
}

// describe fills in what information_schema knows about the columns.
func describe(t testing.TB, s *testenv.Server, table *Table) {
	t.Helper()
	rows := s.Query(fmt.Sprintf(`SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, DATA_TYPE FROM information_schema.COLUMNS
		WHERE TABLE_SCHEMA='%s' AND TABLE_NAME='%s' ORDER BY ORDINAL_POSITION`, table.Schema, table.Name))
	if len(rows) != len(table.Columns) {
		t.Fatalf("%s.%s: %d columns in the log, %d in information_schema", table.Schema, table.Name, len(table.Columns), len(rows))
	}
	for i, r := range rows {
		c := &table.Columns[i]
		c.Name, c.SQLType = r[0], r[1]
		c.Unsigned = strings.Contains(r[1], "unsigned") || r[3] == "year"
		switch c.Charset = r[2]; {
		case c.Charset == "NULL":
			c.Charset = "binary"
		case c.Charset == "utf8":
			c.Charset = "utf8mb3"
		}
		switch r[3] {
		case "enum", "set":
			c.Members = strings.Split(strings.TrimSuffix(strings.TrimPrefix(r[1], r[3]+"('"), "')"), "','")
			for i := range c.Members {
				c.Members[i] = strings.NewReplacer("''", "'", `\\`, `\`).Replace(c.Members[i])
			}
		case "uuid":
			c.Logical = LogicalUUID
		case "inet4":
			c.Logical = LogicalINET4
		case "inet6":
			c.Logical = LogicalINET6
		case "vector":
			if c.Type == TypeVarchar { // MariaDB
				c.Logical = LogicalVector
			}
		}
	}
}

// readRows reads a rows event's body up to its images.
func readRows(t testing.TB, table *Table, typ replication.EventType, b []byte) *Event {
	t.Helper()
	e := &Event{Kind: Rows, Table: table, File: "oracle", Ordinal: 1, Partial: typ == replication.PARTIAL_UPDATE_ROWS_EVENT}
	b = b[8:]
	if typ >= replication.WRITE_ROWS_EVENTv2 {
		b = b[binary.LittleEndian.Uint16(b):]
	}
	n, b := lenenc(b)
	size := (n + 7) / 8
	first, b := b[:size], b[size:]
	switch typ {
	case replication.WRITE_ROWS_EVENTv1, replication.WRITE_ROWS_EVENTv2:
		e.Op, e.Images.After = Insert, first
	case replication.DELETE_ROWS_EVENTv1, replication.DELETE_ROWS_EVENTv2:
		e.Op, e.Images.Before = Delete, first
	default:
		e.Op, e.Images.Before = Update, first
		e.Images.After, b = b[:size], b[size:]
	}
	e.Raw = b
	rows, err := CountRows(table, e.Op, e.Images, e.Raw)
	if e.Partial {
		rows, err = CountPartialRows(table, e.Images, e.Raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	e.Rows = uint32(rows)
	return e
}
