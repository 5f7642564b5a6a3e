package kafka

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec numbers in the attributes of a record batch (KIP-98, KIP-110).
const (
	codecNone   = 0
	codecGzip   = 1
	codecSnappy = 2
	codecLZ4    = 3
	codecZstd   = 4
)

// compressor compresses the records of batches. One goroutine at a time.
type compressor struct {
	codec int16
	gz    *gzip.Writer
	lz    *lz4.Writer
	zs    *zstd.Encoder
	out   sliceWriter
}

// sliceWriter appends what is written to b.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

func newCompressor(name string, level int) (*compressor, error) {
	bad := func(limit int) error {
		return fmt.Errorf("kafka: compression level %d of %s is not within 1 and %d", level, name, limit)
	}
	c := &compressor{}
	var err error
	switch name {
	case "none":
		c.codec = codecNone
	case "gzip":
		if level < 0 || level > gzip.BestCompression {
			return nil, bad(gzip.BestCompression)
		}
		if level == 0 {
			level = gzip.DefaultCompression
		}
		c.codec = codecGzip
		c.gz, err = gzip.NewWriterLevel(&c.out, level)
	case "snappy":
		c.codec = codecSnappy
	case "lz4":
		if level < 0 || level > 9 {
			return nil, bad(9)
		}
		l := lz4.Fast
		if level > 0 {
			l = lz4.CompressionLevel(1 << (8 + level))
		}
		c.codec = codecLZ4
		c.lz = lz4.NewWriter(&c.out)
		// Independent blocks without checksums of their own: what the Java client
		// reads; the batch has a CRC.
		err = c.lz.Apply(lz4.CompressionLevelOption(l), lz4.BlockSizeOption(lz4.Block256Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1))
	case "zstd":
		if level < 0 || level > 22 {
			return nil, bad(22)
		}
		l := zstd.SpeedFastest // same ratio as the default on rows, at 2/5 of the CPU
		if level > 0 {
			l = zstd.EncoderLevelFromZstd(level)
		}
		c.codec = codecZstd
		c.zs, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(l), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	default:
		return nil, fmt.Errorf("kafka: unknown compression %q; use none, gzip, snappy, lz4 or zstd", name)
	}
	return c, err
}

// append appends the compressed src to dst.
func (c *compressor) append(dst, src []byte) ([]byte, error) {
	switch c.codec {
	case codecGzip:
		c.out.b = dst
		c.gz.Reset(&c.out)
		if _, err := c.gz.Write(src); err != nil {
			return nil, err
		}
		if err := c.gz.Close(); err != nil {
			return nil, err
		}
		dst, c.out.b = c.out.b, nil
	case codecSnappy:
		n := s2.MaxEncodedLen(len(src))
		if n < 0 {
			return nil, fmt.Errorf("kafka: %d bytes are too many for snappy", len(src))
		}
		dst = slices.Grow(dst, n)
		// A raw block, without the xerial framing, which readers need not know.
		dst = dst[:len(dst)+len(s2.EncodeSnappy(dst[len(dst):len(dst)+n], src))]
	case codecLZ4:
		c.out.b = dst
		c.lz.Reset(&c.out)
		if _, err := c.lz.Write(src); err != nil {
			return nil, err
		}
		if err := c.lz.Close(); err != nil {
			return nil, err
		}
		dst, c.out.b = c.out.b, nil
	case codecZstd:
		dst = c.zs.EncodeAll(src, dst)
	default:
		dst = append(dst, src...)
	}
	return dst, nil
}

func (c *compressor) close() {
	if c.zs != nil {
		c.zs.Close() //nolint:errcheck // there is no writer below that could fail
	}
}
