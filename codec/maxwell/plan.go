package maxwell

import (
	"strings"

	"github.com/binlogmq/binlogmq/codec/internal/jsonvalue"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

// How a value becomes JSON.
type encoding uint8

const (
	number   encoding = iota // the text is a JSON number (or, VECTOR, an array of them)
	float                    // a number that must look like one that can have a fraction
	unsigned                 // the value's unsigned number: YEAR, whose text has leading zeros
	plain                    // the text in quotes, never in need of escaping
	date                     // the same, of a class that has zero dates
	utf8                     // the raw bytes are text in UTF-8
	text                     // text that may need escaping
	blob                     // base64 of the content
	set                      // array of the members
	document                 // the text is JSON
	likely                   // the text should be JSON, but nothing promises it
	geometry                 // WKT
)

type column struct {
	name     []byte   // `,"name":`
	encoding encoding // of the value
	members  [][]byte // SET: `,"label"` each
}

// plan is what is the same for all rows of a table.
type plan struct {
	columns []column
	head    [event.Delete + 1][]byte // by Op: from the start to the value of ts
	read    []byte                   // the same of a snapshot's rows
	key     []byte                   // hash key: from its start to the end of the table's name
	array   []byte                   // array key: the same
	keyName [][]byte                 // by column, hash key: `,"pk.name":`
	arrName [][]byte                 // by column, array key: `,{"name":`
	pkNames []byte                   // the value of primary_key_columns
}

func newPlan(t *event.Table) (*plan, int) {
	str := func(dst []byte, s string) []byte { return jsontext.AppendString(dst, []byte(s)) }
	n := len(t.Columns)
	p := &plan{columns: make([]column, n), keyName: make([][]byte, n), arrName: make([][]byte, n)}
	weight := 0
	for i := range t.Columns {
		c := &t.Columns[i]
		p.columns[i] = column{name: append(str([]byte{','}, c.Name), ':'), encoding: encodingOf(c)}
		lower := strings.ToLower(c.Name)
		p.keyName[i] = append(str([]byte{','}, "pk."+lower), ':')
		p.arrName[i] = append(str([]byte(",{"), lower), ':')
		weight += 200 + 4*len(c.Name)
		if c.Class == event.ClassSet {
			for _, m := range c.Members {
				p.columns[i].members = append(p.columns[i].members, str([]byte{','}, m))
				weight += 32 + len(m)
			}
		}
	}
	p.key = str(append(p.key, `{"database":`...), t.Schema)
	p.key = str(append(p.key, `,"table":`...), t.Name)
	p.array = str(append(p.array, '['), t.Schema)
	p.array = append(str(append(p.array, ','), t.Name), ",["...)
	for op := event.Insert; op <= event.Delete; op++ {
		p.head[op] = append(p.head[op], p.key...)
		p.head[op] = append(p.head[op], `,"type":"`+op.String()+`","ts":`...)
	}
	p.read = append(append(p.read, p.key...), `,"type":"bootstrap-insert","ts":`...)
	p.pkNames = append(p.pkNames, '[')
	for i, k := range t.Key {
		if i > 0 {
			p.pkNames = append(p.pkNames, ',')
		}
		p.pkNames = str(p.pkNames, t.Columns[k].Name)
	}
	p.pkNames = append(p.pkNames, ']')
	return p, weight + 7*(len(t.Schema)+len(t.Name)+40)
}

func encodingOf(c *event.Column) encoding {
	switch c.Class {
	case event.ClassInt, event.ClassUint, event.ClassDecimal, event.ClassBit, event.ClassVector:
		return number
	case event.ClassFloat, event.ClassDouble:
		return float
	case event.ClassYear:
		return unsigned
	case event.ClassDate, event.ClassDatetime, event.ClassTimestamp:
		return date
	case event.ClassChar, event.ClassText:
		if c.Logical == event.LogicalJSON {
			return likely
		}
		if jsonvalue.UTF8(c) {
			return utf8
		}
		return text
	case event.ClassEnum:
		return text
	case event.ClassSet:
		return set
	case event.ClassJSON:
		return document
	case event.ClassGeometry:
		return geometry
	case event.ClassBinary, event.ClassVarbinary, event.ClassBlob:
		return blob
	}
	return plain
}
