package maxwell

import (
	"github.com/binlogmq/binlogmq/codec"
	"github.com/binlogmq/binlogmq/event"
	"github.com/binlogmq/binlogmq/internal/jsontext"
)

var _ codec.Stubber = (*Codec)(nil)

// AppendStub implements [codec.Stubber]: the digest stands as the column's text, in base64 as its bytes, or
// nested as its document. In the place of a geometry it is a string that is no WKT.
func (c *Codec) AppendStub(dst []byte, r *event.Row, key []int, room int) ([]byte, error) {
	p := c.plans.Get(r.Table)
	return codec.AppendCut("maxwell", dst, r, key, room, c.appendRow, func(s *codec.Span) ([]byte, error) {
		encoding := p.columns[s.Column].encoding
		content := s.Value.Raw()
		switch encoding {
		case utf8, geometry:
		case text, blob, document, likely:
			var err error
			if content, err = s.Value.AppendText(nil); err != nil {
				return nil, err
			}
		default:
			return nil, nil // numbers and dates are never large
		}
		digest := codec.Digest(content)
		switch encoding {
		case blob:
			return jsontext.AppendBase64(nil, digest), nil
		case document, likely:
			return digest, nil
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
