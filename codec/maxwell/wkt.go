package maxwell

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
)

// The geometry types of the Well-Known Binary representation, OGC 06-103r4 table 11.
const (
	wkbPoint = iota + 1
	wkbLineString
	wkbPolygon
	wkbMultiPoint
	wkbMultiLineString
	wkbMultiPolygon
	wkbGeometryCollection
)

var wktNames = [...]string{
	wkbPoint: "POINT", wkbLineString: "LINESTRING", wkbPolygon: "POLYGON",
	wkbMultiPoint: "MULTIPOINT", wkbMultiLineString: "MULTILINESTRING",
	wkbMultiPolygon: "MULTIPOLYGON", wkbGeometryCollection: "GEOMETRYCOLLECTION",
}

// maxNesting bounds collections within collections. The server's own limit is
// a matter of its stack; 100 is more than anything real.
const maxNesting = 100

var errWKB = errors.New("geometry: the bytes are not SRID and WKB as the server writes them")

// appendWKT appends the Well-Known Text of a geometry value: a 4-byte SRID,
// which is dropped, and WKB. Coordinates stand in the order stored.
func appendWKT(dst, b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, errWKB
	}
	w := wkb{b: b[4:]}
	dst = w.geometry(dst, 0, 0, 0)
	if w.bad || len(w.b) > 0 {
		return nil, errWKB
	}
	return dst, nil
}

// wkb reads from the front of b. After an error bad is set and b empty.
type wkb struct {
	b   []byte
	big bool
	bad bool
}

func (w *wkb) fail() { w.b, w.bad = nil, true }

func (w *wkb) uint32() uint32 {
	if len(w.b) < 4 {
		w.fail()
		return 0
	}
	n := binary.LittleEndian.Uint32(w.b)
	if w.big {
		n = binary.BigEndian.Uint32(w.b)
	}
	w.b = w.b[4:]
	return n
}

// count reads the number of elements of at least size bytes that follow.
func (w *wkb) count(size int) int {
	n := int64(w.uint32())
	if n > int64(len(w.b)/size) {
		w.fail()
		return 0
	}
	return int(n)
}

func (w *wkb) coordinate(dst []byte) []byte {
	if len(w.b) < 8 {
		w.fail()
		return dst
	}
	n := binary.LittleEndian.Uint64(w.b)
	if w.big {
		n = binary.BigEndian.Uint64(w.b)
	}
	w.b = w.b[8:]
	f := math.Float64frombits(n)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		w.fail()
		return dst
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64) // as JTS, which Maxwell writes with: never an exponent
}

func (w *wkb) point(dst []byte) []byte {
	dst = w.coordinate(dst)
	return w.coordinate(append(dst, ' '))
}

// list appends n elements in parentheses, or EMPTY.
func (w *wkb) list(dst []byte, n int, element func([]byte) []byte) []byte {
	if n == 0 {
		return append(dst, "EMPTY"...)
	}
	for i := 0; i < n && !w.bad; i++ {
		if i == 0 {
			dst = append(dst, '(')
		} else {
			dst = append(dst, ", "...)
		}
		dst = element(dst)
	}
	return append(dst, ')')
}

func (w *wkb) points(dst []byte) []byte { return w.list(dst, w.count(16), w.point) }
func (w *wkb) rings(dst []byte) []byte  { return w.list(dst, w.count(4), w.points) }

// geometry appends one geometry. Inside a multi-geometry of kind parent the
// name of its elements is left out and their kind must be want.
func (w *wkb) geometry(dst []byte, parent, want uint32, depth int) []byte {
	if len(w.b) < 1 || w.b[0] > 1 || depth > maxNesting {
		w.fail()
		return dst
	}
	w.big = w.b[0] == 0
	w.b = w.b[1:]
	kind := w.uint32()
	if kind < wkbPoint || kind > wkbGeometryCollection || want != 0 && kind != want {
		w.fail()
		return dst
	}
	if parent == 0 || parent == wkbGeometryCollection {
		dst = append(append(dst, wktNames[kind]...), ' ')
	}
	switch kind {
	case wkbPoint:
		dst = w.point(append(dst, '('))
		return append(dst, ')')
	case wkbLineString:
		return w.points(dst)
	case wkbPolygon:
		return w.rings(dst)
	}
	want = 0
	if kind != wkbGeometryCollection {
		want = kind - wkbMultiPoint + wkbPoint
	}
	return w.list(dst, w.count(9), func(dst []byte) []byte { return w.geometry(dst, kind, want, depth+1) })
}
