package workload

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// parseDebezium reads a message of the codec debezium. With a schema, values are turned into the source's text as the
// schema says; without one they stay as they are.
func parseDebezium(value []byte) (*Change, error) {
	var m struct {
		Schema struct {
			Fields []struct {
				Field  string
				Fields []debeziumField
			}
		}
		Payload json.RawMessage
	}
	if err := json.Unmarshal(value, &m); err != nil {
		return nil, fmt.Errorf("%w in %s", err, value)
	}
	if m.Payload == nil {
		m.Payload = value
	}
	var p struct {
		Before, After json.RawMessage
		Source        struct{ DB, Table string }
		Op            string
	}
	if err := json.Unmarshal(m.Payload, &p); err != nil {
		return nil, fmt.Errorf("%w in %s", err, value)
	}
	c := &Change{Schema: p.Source.DB, Table: p.Source.Table, Op: map[string]string{"c": "insert", "r": "insert", "u": "update", "d": "delete"}[p.Op]}
	types := map[string]debeziumField{}
	for _, f := range m.Schema.Fields {
		if f.Field == "after" {
			for _, column := range f.Fields {
				types[column.Field] = column
			}
		}
	}
	image := func(raw json.RawMessage) (map[string]*string, error) {
		row, err := fields(raw, false)
		if err != nil {
			return nil, fmt.Errorf("%w in %s", err, value)
		}
		for name, v := range row {
			if v == nil {
				continue
			}
			if *v, err = types[name].text(*v); err != nil {
				return nil, fmt.Errorf("%s: %w in %s", name, err, value)
			}
		}
		return row, nil
	}
	var err error
	if c.Op == "delete" {
		c.Data, err = image(p.Before)
		return c, err
	}
	if c.Data, err = image(p.After); err != nil || c.Op != "update" {
		return c, err
	}
	before, err := image(p.Before)
	if err != nil {
		return nil, err
	}
	c.Old = map[string]*string{}
	for name, v := range before {
		if !same(v, c.Data[name]) {
			c.Old[name] = v
		}
	}
	return c, nil
}

// debeziumField is the schema of a column.
type debeziumField struct {
	Field, Name string
	Parameters  struct{ Scale string }
}

func (f debeziumField) text(v string) (string, error) {
	switch f.Name {
	case "org.apache.kafka.connect.data.Decimal":
		b, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			return "", err
		}
		n := new(big.Int).SetBytes(b)
		if len(b) > 0 && b[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
		scale, err := strconv.Atoi(f.Parameters.Scale)
		if err != nil || scale == 0 {
			return n.String(), err
		}
		digits := fmt.Sprintf("%0*d", scale+1, new(big.Int).Abs(n))
		text := digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
		if n.Sign() < 0 {
			text = "-" + text
		}
		return text, nil
	case "io.debezium.time.MicroTimestamp":
		n, err := strconv.ParseInt(v, 10, 64)
		return time.UnixMicro(n).UTC().Format("2006-01-02 15:04:05.000000"), err
	case "io.debezium.time.ZonedTimestamp":
		return strings.NewReplacer("T", " ", "Z", "").Replace(v), nil
	}
	return v, nil
}
