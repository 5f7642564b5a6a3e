package debezium

import (
	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

var _ codec.Stubber = (*Codec)(nil)

// AppendStub implements [codec.Stubber]: the digest stands as the column's text, as its bytes in the form that byte
// strings have, or as a geometry's wkb.
func (c *Codec) AppendStub(dst []byte, r *event.Row, key []int, room int) ([]byte, error) {
	p := c.plans.Get(r.Table)
	return codec.AppendCut("debezium", dst, r, key, room, c.appendRow, func(s *codec.Span) ([]byte, error) {
		encoding := p.columns[s.Column].encoding
		content := s.Value.Raw()
		switch encoding {
		case utf8, geometry:
		case text, blob:
			var err error
			if content, err = s.Value.AppendText(nil); err != nil {
				return nil, err
			}
		default:
			return nil, nil // numbers, dates and points are never large
		}
		digest := codec.Digest(content)
		switch encoding {
		case blob:
			return c.appendBinary(nil, digest), nil
		case geometry:
			return append(jsontext.AppendBase64([]byte(`{"wkb":`), digest), `,"srid":null}`...), nil
		}
		return jsontext.AppendString(nil, digest), nil
	})
}

// AppendDDLStub implements [codec.Stubber].
func (c *Codec) AppendDDLStub(dst []byte, e *event.Event, room int) ([]byte, error) {
	at := len(dst)
	dst = c.appendDDL(dst, e, codec.DigestComment(e.Raw), false)
	return codec.Fits(dst, at, room)
}
