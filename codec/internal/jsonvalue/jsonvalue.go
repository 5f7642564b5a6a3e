package jsonvalue

import (
	"fmt"

	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

// packed reports whether values of the column are stored packed (MariaDB's COMPRESSED), so that
// their raw bytes are not their content.
func packed(c *event.Column) bool {
	return c.Type == event.TypeBlobCompressed || c.Type == event.TypeVarcharCompressed
}

// UTF8 reports whether the raw bytes of a text column are text in UTF-8.
func UTF8(c *event.Column) bool {
	switch c.Charset {
	case "utf8mb4", "utf8mb3", "utf8":
		return !packed(c)
	}
	return false
}

// AppendFloat appends a number that has a fraction or an exponent: consumers that
// derive a column's type from its values would take 1 for an integer.
func AppendFloat(dst []byte, v *event.Value) ([]byte, error) {
	at := len(dst)
	dst, err := v.AppendText(dst)
	if err != nil {
		return nil, err
	}
	for _, b := range dst[at:] {
		switch {
		case b == '.' || b == 'e' || b == 'E':
			return dst, nil
		case b != '-' && (b < '0' || b > '9'):
			return nil, fmt.Errorf("column %q: %q is no number that JSON knows", v.Column().Name, dst[at:])
		}
	}
	return append(dst, ".0"...), nil
}

// AppendBase64 appends the content of a byte string in base64, in quotes.
func AppendBase64(dst []byte, v *event.Value) ([]byte, error) {
	return AppendEncoded(dst, v, jsontext.AppendBase64)
}

// AppendEncoded appends the content of a value as encode writes it.
func AppendEncoded(dst []byte, v *event.Value, encode func(dst, content []byte) []byte) ([]byte, error) {
	switch c := v.Column(); c.Class {
	case event.ClassVarbinary, event.ClassBlob:
		if !packed(c) {
			return encode(dst, v.Raw()), nil
		}
	}
	// The content is completed behind dst, written again behind itself, and moved down.
	at := len(dst)
	dst, err := v.AppendText(dst)
	if err != nil {
		return nil, err
	}
	end := len(dst)
	dst = encode(dst, dst[at:])
	return dst[:at+copy(dst[at:], dst[end:])], nil
}
