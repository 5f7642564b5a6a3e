package canaljson

import (
	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/codec/internal/canaltype"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

var _ codec.Stubber = (*Codec)(nil)

// AppendStub implements [codec.Stubber]: the digest stands in the place of the column's text or, encoded as the
// column's bytes would be, of its bytes.
func (c *Codec) AppendStub(dst []byte, r *event.Row, key []int, room int) ([]byte, error) {
	p := c.plans.Get(r.Table)
	return codec.AppendCut("canal-json", dst, r, key, room, c.appendRow, func(s *codec.Span) ([]byte, error) {
		switch p.columns[s.Column].encoding {
		case canaltype.UTF8:
			return jsontext.AppendString(nil, codec.Digest(s.Value.Raw())), nil
		case canaltype.Raw:
			return c.appendBytes(nil, codec.Digest(s.Value.Raw())), nil
		case canaltype.Text, canaltype.Padded:
			content, err := s.Value.AppendText(nil)
			if err != nil {
				return nil, err
			}
			if p.columns[s.Column].encoding == canaltype.Text {
				return jsontext.AppendString(nil, codec.Digest(content)), nil
			}
			return c.appendBytes(nil, codec.Digest(content)), nil
		}
		return nil, nil // numbers and dates are never large
	})
}

// AppendDDLStub implements [codec.Stubber].
func (c *Codec) AppendDDLStub(dst []byte, e *event.Event, room int) ([]byte, error) {
	at := len(dst)
	dst = c.appendDDL(dst, e, codec.DigestComment(e.Raw))
	return codec.Fits(dst, at, room)
}
