package wire

import (
	"fmt"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Numbers of CompressionType.
const (
	compressNone   = 0
	compressLZ4    = 1
	compressZLib   = 2
	compressZstd   = 3
	compressSnappy = 4
)

func compression(name string) (int, error) {
	switch name {
	case "", "none":
		return compressNone, nil
	case "lz4":
		return compressLZ4, nil
	case "zlib":
		return compressZLib, nil
	case "zstd":
		return compressZstd, nil
	case "snappy":
		return compressSnappy, nil
	}
	return 0, fmt.Errorf("unknown compression %q; use none, lz4, zlib, zstd or snappy", name)
}

// compressor compresses payloads. One goroutine at a time; parts come into
// being when first used.
type compressor struct {
	lz  lz4.Compressor
	zs  *zstd.Encoder
	zl  *zlib.Writer
	out buffer
}

type buffer struct{ b []byte }

func (w *buffer) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// compress returns the payload to send and its type: payload itself where that
// is not longer. The result is valid until the next call.
func (c *compressor) compress(typ int, payload []byte) ([]byte, int, error) {
	if typ == compressNone || len(payload) == 0 {
		return payload, compressNone, nil
	}
	if cap(c.out.b) > keepBuffer {
		c.out.b = nil
	}
	var err error
	switch typ {
	case compressLZ4: // one block without frame
		if bound := lz4.CompressBlockBound(len(payload)); cap(c.out.b) < bound {
			c.out.b = make([]byte, bound)
		}
		c.out.b = c.out.b[:cap(c.out.b)]
		var n int
		n, err = c.lz.CompressBlock(payload, c.out.b)
		c.out.b = c.out.b[:n]
	case compressZLib:
		c.out.b = c.out.b[:0]
		if c.zl == nil {
			c.zl = zlib.NewWriter(&c.out)
		} else {
			c.zl.Reset(&c.out)
		}
		if _, err = c.zl.Write(payload); err == nil {
			err = c.zl.Close()
		}
	case compressZstd:
		if c.zs == nil {
			// The fastest level: on rows it has the ratio of the default at 2/5 of the CPU.
			if c.zs, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)); err != nil {
				return nil, 0, err
			}
		}
		c.out.b = c.zs.EncodeAll(payload, c.out.b[:0])
	case compressSnappy: // one block without frame
		if bound := s2.MaxEncodedLen(len(payload)); cap(c.out.b) < bound {
			c.out.b = make([]byte, bound)
		}
		c.out.b = s2.EncodeSnappy(c.out.b[:cap(c.out.b)], payload)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("compressing: %w", err)
	}
	if len(c.out.b) == 0 || len(c.out.b) >= len(payload) {
		return payload, compressNone, nil
	}
	return c.out.b, typ, nil
}
