package snapshot

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/binlogmq/binlogmq/event"
)

// Key returns the names of the columns of the table's key, by which it is read in order; false if it has none by which it can be.
func (r *Reader) Key() (names []string, ok bool) {
	for _, k := range r.table.Key {
		if r.columns[k].unordered {
			return nil, false
		}
		names = append(names, r.table.Columns[k].Name)
	}
	return names, len(names) > 0
}

// Literals returns the row's key as SQL literals, for [Reader.Where]: fields are a whole row, as for [Reader.Append].
func (r *Reader) Literals(fields []mysql.FieldValue) ([]string, error) {
	if len(fields) != len(r.columns) {
		return nil, fmt.Errorf("table %s.%s: %d values of %d columns", r.table.Schema, r.table.Name, len(fields), len(r.columns))
	}
	out := make([]string, len(r.table.Key))
	for i, k := range r.table.Key {
		var ok bool
		if out[i], ok = r.columns[k].literal(&fields[k]); !ok {
			return nil, fmt.Errorf("table %s.%s: column %q (%s) of the key: %w", r.table.Schema, r.table.Name, r.columns[k].Name, r.columns[k].SQLType, errValue)
		}
	}
	return out, nil
}

// literal returns a value as the server compares it with the column's.
func (c *column) literal(f *mysql.FieldValue) (string, bool) {
	b := f.AsString()
	switch f.Type {
	case mysql.FieldValueTypeSigned:
		return strconv.FormatInt(f.AsInt64(), 10), true
	case mysql.FieldValueTypeUnsigned:
		return strconv.FormatUint(f.AsUint64(), 10), true
	case mysql.FieldValueTypeFloat:
		return strconv.FormatFloat(f.AsFloat64(), 'e', -1, 64), true
	case mysql.FieldValueTypeNull:
		return "", false
	}
	switch c.form {
	case formDecimal:
		return string(b), true
	case formTemporal, formUUID, formINET:
		return "'" + string(b) + "'", true
	}
	if c.Class == event.ClassBit { // as a number: what is written in hex would be compared with less than 64 bits
		var n uint64
		for _, x := range b {
			n = n<<8 | uint64(x)
		}
		return strconv.FormatUint(n, 10), true
	}
	if c.bytes {
		return "X'" + hex.EncodeToString(b) + "'", true
	}
	return "_" + c.Charset + " X'" + hex.EncodeToString(b) + "'", true
}

// compared is what of the column is compared with its literals, and what rows are ordered by.
func (c *column) compared() string {
	switch {
	case c.Type == event.TypeSet:
		return c.sql // by itself it would be compared with a number as one of less than 64 bits
	case c.bytes:
		return "CAST(" + Quote(c.Name) + " AS BINARY)"
	}
	return Quote(c.Name)
}

// against compares the column with a literal.
func (c *column) against(op, literal string) string {
	// Servers find no range of an index for an ENUM that is greater or less than a number, but for one that equals one of several.
	n, err := strconv.Atoi(literal)
	if c.Type != event.TypeEnum || len(c.Members) > enumLimit || err != nil || op == "=" {
		return c.compared() + op + literal
	}
	from, to := n+1, len(c.Members)
	switch op {
	case "<":
		from, to = 0, n-1
	case "<=":
		from, to = 0, n
	}
	var list []string
	for n := from; n <= to; n++ {
		list = append(list, c.compared()+"="+strconv.Itoa(n))
	}
	if len(list) == 0 {
		return "FALSE"
	}
	return "(" + strings.Join(list, " OR ") + ")"
}

// enumLimit is the greatest number of labels of an ENUM that are listed in a condition.
const enumLimit = 100

// Where returns the condition of rows whose key is greater than last and not greater than most, which are literals of [Reader.Literals];
// without one of them there is no such bound. It is "TRUE" without both.
func (r *Reader) Where(last, most []string) string {
	var and []string
	if len(last) > 0 {
		and = append(and, r.beyond(last, ">", ">"))
	}
	if len(most) > 0 {
		and = append(and, r.beyond(most, "<", "<="))
	}
	if len(and) == 0 {
		return "TRUE"
	}
	return strings.Join(and, " AND ")
}

// beyond returns the condition of keys on one side of a key, in the form that servers find a range of the index in.
func (r *Reader) beyond(key []string, op, final string) string {
	var or []string
	equal := ""
	for i, k := range r.table.Key {
		name := r.columns[k].compared()
		how := op
		if i == len(r.table.Key)-1 {
			how = final
		}
		or = append(or, "("+equal+r.columns[k].against(how, key[i])+")")
		equal += name + "=" + key[i] + " AND "
	}
	return "(" + strings.Join(or, " OR ") + ")"
}

// Order returns the list of an ORDER BY.
func (r *Reader) Order(descending bool) string {
	list := make([]string, len(r.table.Key))
	for i, k := range r.table.Key {
		if list[i] = r.columns[k].compared(); descending {
			list[i] += " DESC"
		}
	}
	return strings.Join(list, ",")
}

// AppendIdentity appends bytes that are the same for two images of rows of one table, of the stream or of chunks, if and only if their keys are
// the same, byte for byte and not only as the server compares them; of a table without a key, all their columns. It is false
// if the image lacks a column of it.
func AppendIdentity(dst []byte, t *event.Table, image []event.Value) ([]byte, bool) {
	start := len(dst)
	if len(image) != len(t.Columns) {
		return dst, false
	}
	if len(t.Key) == 0 {
		for i := range image {
			var ok bool
			if dst, ok = appendIdentity(dst, &image[i]); !ok {
				return dst[:start], false
			}
		}
		return dst, true
	}
	for _, k := range t.Key {
		var ok bool
		if dst, ok = appendIdentity(dst, &image[k]); !ok {
			return dst[:start], false
		}
	}
	return dst, true
}

// appendIdentity appends a value. Its text is that of any form in which it may be stored.
func appendIdentity(dst []byte, v *event.Value) ([]byte, bool) {
	if v.IsNull() {
		return append(dst, 0), true
	}
	if v.IsAbsent() {
		return dst, false
	}
	start := len(dst)
	dst = append(dst, 1, 0, 0, 0, 0)
	c := v.Column()
	packed := c.Type == event.TypeVarcharCompressed || c.Type == event.TypeBlobCompressed
	switch c.Class {
	case event.ClassChar, event.ClassText, event.ClassEnum, event.ClassSet:
		if !packed {
			dst = append(dst, v.Raw()...) // as text, different bytes may be the same
			break
		}
		fallthrough
	default:
		var err error
		if dst, err = v.AppendText(dst); err != nil {
			return dst[:start], false
		}
	}
	n := len(dst) - start - 5
	dst[start+1], dst[start+2], dst[start+3], dst[start+4] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return dst, true
}
