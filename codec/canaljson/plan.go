package canaljson

import (
	"strconv"

	"github.com/binlogmq/binlogmq/codec/internal/canaltype"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

type column struct {
	name     []byte // `,"name":`
	encoding canaltype.Encoding
}

// plan is what is the same for all rows of a table.
type plan struct {
	columns  []column
	database []byte // from the end of data to the value of es
	types    []byte // from the end of id to the value of old
	table    []byte // from the end of old to the value of ts
	noKey    []byte // the message key of a table without one
}

func (c *Codec) plan(t *event.Table) (*plan, int) {
	p := &plan{columns: make([]column, len(t.Columns))}
	weight := 0
	str := func(dst []byte, s string) []byte { return jsontext.AppendString(dst, []byte(s)) }

	p.database = append(p.database, `}],"database":`...)
	p.database = append(str(p.database, t.Schema), `,"es":`...)

	p.types = append(p.types, `,"isDdl":false,"mysqlType":{`...)
	var sqlTypes []byte
	for i := range t.Columns {
		col := &t.Columns[i]
		name := append(str([]byte{','}, col.Name), ':')
		p.columns[i] = column{name: name, encoding: canaltype.EncodingOf(col, c.labels)}
		weight += 40 + len(name)
		if i == 0 {
			name = name[1:]
		}
		p.types = str(append(p.types, name...), col.SQLType)
		sqlTypes = strconv.AppendInt(append(sqlTypes, name...), int64(canaltype.SQLType(col, c.labels)), 10)
	}
	p.types = append(p.types, `},"old":`...)

	p.table = append(p.table, `,"pkNames":`...)
	if len(t.Key) == 0 {
		p.table = append(p.table, "null"...)
	} else {
		for i, k := range t.Key {
			p.table = append(p.table, "[,"[min(i, 1)])
			p.table = str(p.table, t.Columns[k].Name)
		}
		p.table = append(p.table, ']')
	}
	p.table = append(p.table, `,"sql":"","sqlType":{`...)
	p.table = append(p.table, sqlTypes...)
	p.table = append(p.table, `},"table":`...)
	p.table = append(str(p.table, t.Name), `,"ts":`...)

	p.noKey = append(append(append(p.noKey, t.Schema...), '.'), t.Name...)
	return p, weight + len(p.database) + len(p.types) + len(p.table) + len(p.noKey)
}
