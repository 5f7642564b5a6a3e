package maxwell

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// wkbOf builds WKB: a number is a coordinate, an int a count, []any a geometry {kind, ...}.
func wkbOf(big bool, parts ...any) []byte {
	var order binary.AppendByteOrder = binary.LittleEndian
	b := []byte{1}
	if big {
		order, b[0] = binary.BigEndian, 0
	}
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = order.AppendUint32(b, uint32(p))
		case float64:
			b = order.AppendUint64(b, math.Float64bits(p))
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

func srid(b []byte) []byte { return append([]byte{0xe6, 0x10, 0, 0}, b...) }

func TestWKT(t *testing.T) {
	point := func(x, y float64) []byte { return wkbOf(false, wkbPoint, x, y) }
	line := wkbOf(false, wkbLineString, 2, 0., 0., 1.5, -1.)
	polygon := wkbOf(false, wkbPolygon, 2, 4, 0., 0., 4., 0., 4., 4., 0., 0., 4, 1., 1., 2., 1., 2., 2., 1., 1.)
	for want, b := range map[string][]byte{
		"POINT (1 2)":                                                 point(1, 2),
		"POINT (-0.5 1000000000000000000000)":                         wkbOf(true, wkbPoint, -0.5, 1e21),
		"POINT (0.00000015 1113194.9079327357)":                       point(1.5e-7, 1113194.9079327357),
		"POINT (12.345678901234567 0)":                                point(12.345678901234567, 0),
		"LINESTRING (0 0, 1.5 -1)":                                    line,
		"LINESTRING EMPTY":                                            wkbOf(false, wkbLineString, 0),
		"POLYGON ((0 0, 4 0, 4 4, 0 0), (1 1, 2 1, 2 2, 1 1))":        polygon,
		"MULTIPOINT ((1 2), (3 4))":                                   wkbOf(false, wkbMultiPoint, 2, point(1, 2), point(3, 4)),
		"MULTILINESTRING ((0 0, 1.5 -1), (0 0, 1.5 -1))":              wkbOf(false, wkbMultiLineString, 2, line, line),
		"MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0), (1 1, 2 1, 2 2, 1 1)))": wkbOf(true, wkbMultiPolygon, 1, polygon),
		"GEOMETRYCOLLECTION EMPTY":                                    wkbOf(false, wkbGeometryCollection, 0),
		"GEOMETRYCOLLECTION (POINT (1 2), GEOMETRYCOLLECTION (LINESTRING (0 0, 1.5 -1)), MULTIPOINT ((3 4)))": wkbOf(false, wkbGeometryCollection, 3,
			point(1, 2), wkbOf(true, wkbGeometryCollection, 1, line), wkbOf(false, wkbMultiPoint, 1, point(3, 4))),
	} {
		got, err := appendWKT([]byte("x"), srid(b))
		if err != nil || string(got) != "x"+want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
		buf := make([]byte, 0, 1024)
		in := srid(b)
		if n := testing.AllocsPerRun(20, func() { appendWKT(buf, in) }); n != 0 {
			t.Errorf("%s: %v allocations", want, n)
		}
		// Whatever is missing or too much is noticed.
		for i := range in {
			if got, err := appendWKT(nil, in[:i]); err == nil {
				t.Errorf("%s cut to %d bytes gives %s", want, i, got)
			}
		}
		if got, err := appendWKT(nil, append(in, 0)); err == nil {
			t.Errorf("%s with a byte too much gives %s", want, got)
		}
	}
	deep := point(1, 2)
	for range 200 {
		deep = wkbOf(false, wkbGeometryCollection, 1, deep)
	}
	for name, b := range map[string][]byte{
		"nested too deep":   deep,
		"unknown kind":      wkbOf(false, 8, 1., 2.),
		"no kind":           wkbOf(false, 0, 1., 2.),
		"wrong element":     wkbOf(false, wkbMultiPoint, 1, line),
		"count beyond data": wkbOf(false, wkbLineString, 1<<31-1, 0., 0.),
		"byte order 2":      append([]byte{2}, point(1, 2)[1:]...),
		"not a number":      point(math.NaN(), 0),
		"infinite":          point(0, math.Inf(1)),
	} {
		if got, err := appendWKT(nil, srid(b)); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func FuzzWKT(f *testing.F) {
	f.Add(srid(wkbOf(false, wkbMultiPoint, 1, wkbOf(true, wkbPoint, 1., 2.))))
	f.Add(srid(wkbOf(false, wkbGeometryCollection, 1, wkbOf(false, wkbPolygon, 1, 1, 0., 0.))))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := appendWKT(nil, b)
		if err != nil {
			return
		}
		if !json.Valid([]byte(`"`+string(out)+`"`)) || strings.Count(string(out), "(") != strings.Count(string(out), ")") {
			t.Errorf("%x gives %s", b, out)
		}
		if len(out) > 100*len(b)+100 {
			t.Errorf("%d bytes from %d", len(out), len(b))
		}
	})
}
