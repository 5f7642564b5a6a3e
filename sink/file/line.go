package file

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/binlogmq/binlogmq/internal/jsontext"
	"github.com/binlogmq/binlogmq/sink"
)

// lineStart is how each line begins that is not a bare value.
const lineStart = `{"topic":`

// appendLine appends m's line, with its line end.
func appendLine(dst []byte, m *sink.Message) []byte {
	dst = append(dst, lineStart...)
	dst = jsontext.AppendString(dst, []byte(m.Topic))
	switch {
	case m.Key == nil:
		dst = append(dst, `,"key":null`...)
	case utf8.Valid(m.Key):
		dst = jsontext.AppendString(append(dst, `,"key":`...), m.Key)
	default:
		dst = jsontext.AppendBase64(append(dst, `,"key_base64":`...), m.Key)
	}
	switch {
	case m.Value == nil:
		dst = append(dst, `,"value":null`...)
	case isLine(m.Value) && string(m.Value) != "null":
		dst = append(append(dst, `,"value":`...), m.Value...)
	default:
		dst = jsontext.AppendBase64(append(dst, `,"value_base64":`...), m.Value)
	}
	dst = append(dst, `,"headers":{`...)
	for i := range m.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsontext.AppendString(dst, []byte(m.Headers[i].Name))
		dst = append(dst, ':')
		dst = jsontext.AppendString(dst, m.Headers[i].Value)
	}
	dst = append(dst, `},"sequence":`...)
	dst = strconv.AppendInt(dst, m.Sequence, 10)
	return append(dst, '}', '\n')
}

// appendValue appends m's value as a line, with its line end.
func appendValue(dst []byte, m *sink.Message) []byte {
	switch {
	case m.Value == nil:
		dst = append(dst, "null"...)
	case isLine(m.Value):
		dst = append(dst, m.Value...)
	case utf8.Valid(m.Value) && json.Valid(m.Value):
		var b bytes.Buffer
		_ = json.Compact(&b, m.Value) // it is valid
		dst = append(dst, b.Bytes()...)
	default:
		dst = jsontext.AppendBase64(dst, m.Value)
	}
	return append(dst, '\n')
}

// isLine tells whether v can stand in a line as it is and be found again byte
// by byte: a JSON text in UTF-8 without line breaks or blanks around it.
func isLine(v []byte) bool {
	if len(v) == 0 || v[0] <= ' ' || v[len(v)-1] <= ' ' {
		return false
	}
	return bytes.IndexByte(v, '\n') < 0 && bytes.IndexByte(v, '\r') < 0 && json.Valid(v) && utf8.Valid(v)
}
