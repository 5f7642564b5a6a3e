package event

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
)

// What a JSON difference does. Source: MySQL, sql/json_diff.h.
const (
	jsonReplace = 0
	jsonInsert  = 1
	jsonRemove  = 2
)

var errJSONDiff = errors.New("malformed JSON difference, or one that does not fit the document in the before image")

// applyJSONDiffs returns the document that the differences of a partial update
// make of doc. They are applied one after the other; each is an operation, a
// path in JSON path syntax and, unless it removes, a value in binary JSON. With
// none of them doc itself is returned.
func applyJSONDiffs(doc, diffs []byte) ([]byte, error) {
	if len(diffs) == 0 {
		return doc, nil
	}
	if len(doc) == 0 {
		doc = []byte{jsonLiteral, 0}
	}
	root, err := parseJSON(doc)
	if err != nil {
		return nil, err
	}
	for len(diffs) > 0 {
		op := diffs[0]
		var path []byte
		if path, diffs, err = packedBytes(diffs[1:]); err != nil {
			return nil, err
		}
		legs, err := parseJSONPath(path)
		if err != nil {
			return nil, err
		}
		var value *jsonNode
		switch op {
		case jsonRemove:
		case jsonReplace, jsonInsert:
			var b []byte
			if b, diffs, err = packedBytes(diffs); err != nil {
				return nil, err
			}
			if len(b) == 0 {
				return nil, errJSONDiff
			}
			if value, err = parseJSON(b); err != nil {
				return nil, err
			}
		default:
			return nil, errJSONDiff
		}
		if len(legs) == 0 {
			if op != jsonReplace {
				return nil, errJSONDiff
			}
			root = value
			continue
		}
		parent := root
		for _, leg := range legs[:len(legs)-1] {
			i, ok := parent.find(leg)
			if !ok {
				return nil, errJSONDiff
			}
			parent = parent.kids[i]
		}
		if !parent.apply(op, legs[len(legs)-1], value) {
			return nil, errJSONDiff
		}
	}
	if root.depth() > jsonDepth {
		return nil, errJSONDepth
	}
	root.measure()
	return root.append(make([]byte, 0, 1+root.size)), nil
}

// packedBytes reads MySQL's packed integer and as many bytes.
func packedBytes(b []byte) (value, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, errJSONDiff
	}
	size := 0
	switch b[0] {
	case 251, 255:
		return nil, nil, errJSONDiff
	case 252:
		size = 2
	case 253:
		size = 3
	case 254:
		size = 8
	}
	n := uint64(b[0])
	b = b[1:]
	if len(b) < size {
		return nil, nil, errJSONDiff
	}
	if size > 0 {
		n = littleEndian(b[:size])
		b = b[size:]
	}
	if n > uint64(len(b)) {
		return nil, nil, errJSONDiff
	}
	return b[:n], b[n:], nil
}

// A jsonLeg is one step of a path: into an object, or into an array.
type jsonLeg struct {
	key    []byte
	index  int
	last   bool // index counts back from the last element
	object bool
}

// parseJSONPath reads "$", then ".name", `."quoted name"`, "[index]", "[last]"
// and "[last-index]" steps; nothing else stands in a difference.
func parseJSONPath(p []byte) ([]jsonLeg, error) {
	if len(p) == 0 || p[0] != '$' {
		return nil, errJSONDiff
	}
	var legs []jsonLeg
	for p = p[1:]; len(p) > 0; {
		switch {
		case p[0] == '[':
			end := bytes.IndexByte(p, ']')
			if end < 0 {
				return nil, errJSONDiff
			}
			leg, text := jsonLeg{}, string(p[1:end])
			if text == "last" {
				text = "last-0"
			}
			text, leg.last = strings.CutPrefix(text, "last-")
			n, err := strconv.ParseUint(text, 10, 31)
			if err != nil {
				return nil, errJSONDiff
			}
			leg.index = int(n)
			legs = append(legs, leg)
			p = p[end+1:]
		case len(p) > 1 && p[0] == '.' && p[1] == '"':
			end := 2
			for end < len(p) && p[end] != '"' {
				if p[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(p) {
				return nil, errJSONDiff
			}
			var key string
			if json.Unmarshal(p[1:end+1], &key) != nil {
				return nil, errJSONDiff
			}
			legs = append(legs, jsonLeg{key: []byte(key), object: true})
			p = p[end+1:]
		case p[0] == '.':
			end := 1
			for end < len(p) && p[end] != '.' && p[end] != '[' {
				end++
			}
			if end == 1 {
				return nil, errJSONDiff
			}
			legs = append(legs, jsonLeg{key: p[1:end], object: true})
			p = p[end:]
		default:
			return nil, errJSONDiff
		}
	}
	return legs, nil
}

// jsonNode is a value of a document that is being changed. Its bytes alias
// the document's.
type jsonNode struct {
	typ    byte     // scalar's type, jsonSmallObject or jsonSmallArray
	scalar []byte   // a scalar's bytes behind the type
	keys   [][]byte // an object's, in the server's order: by length, then by bytes
	kids   []*jsonNode

	large bool // set by measure
	size  int  // bytes behind the type
}

// parseJSON reads a whole document.
func parseJSON(doc []byte) (*jsonNode, error) {
	budget := len(doc)
	return parseJSONValue(doc[0], doc[1:], 0, &budget)
}

func parseJSONValue(typ byte, b []byte, depth int, budget *int) (*jsonNode, error) {
	size := 0
	switch typ {
	case jsonSmallObject, jsonLargeObject, jsonSmallArray, jsonLargeArray:
		return parseJSONContainer(typ, b, depth, budget)
	case jsonLiteral:
		size = 1
	case jsonInt16, jsonUint16:
		size = 2
	case jsonInt32, jsonUint32:
		size = 4
	case jsonInt64, jsonUint64, jsonDouble:
		size = 8
	case jsonString, jsonOpaque:
		head := b
		if typ == jsonOpaque {
			if len(b) < 1 {
				return nil, errJSON
			}
			head = b[1:]
		}
		s, err := jsonBytes(head)
		if err != nil {
			return nil, err
		}
		// s ends where the value does.
		size = len(b) - len(head) + jsonLengthBytes(head) + len(s)
		*budget -= len(s)
	default:
		return nil, errJSON
	}
	if len(b) < size || *budget < 0 {
		return nil, errJSON
	}
	return &jsonNode{typ: typ, scalar: b[:size]}, nil
}

// jsonLengthBytes returns the size of the length that [jsonBytes] has read.
func jsonLengthBytes(b []byte) int {
	n := 1
	for b[n-1]&0x80 != 0 {
		n++
	}
	return n
}

func parseJSONContainer(typ byte, b []byte, depth int, budget *int) (*jsonNode, error) {
	if depth >= jsonDepth {
		return nil, errJSONDepth
	}
	c, err := openJSON(typ, b)
	if err != nil {
		return nil, err
	}
	if *budget -= c.n * c.entry(); *budget < 0 {
		return nil, errJSON
	}
	n := &jsonNode{typ: typ &^ 1, kids: make([]*jsonNode, c.n)}
	if c.object {
		n.keys = make([][]byte, c.n)
	}
	for i := range c.n {
		if c.object {
			if n.keys[i], err = c.key(i); err != nil {
				return nil, err
			}
			*budget -= len(n.keys[i])
		}
		typ, b, err := c.value(i)
		if err != nil {
			return nil, err
		}
		if n.kids[i], err = parseJSONValue(typ, b, depth+1, budget); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// find returns the index of the element that the leg leads to; for a member
// that is not there, the index at which it belongs.
func (n *jsonNode) find(leg jsonLeg) (int, bool) {
	if leg.object {
		if n.typ != jsonSmallObject {
			return 0, false
		}
		return slices.BinarySearchFunc(n.keys, leg.key, func(a, b []byte) int {
			if len(a) != len(b) {
				return len(a) - len(b)
			}
			return bytes.Compare(a, b)
		})
	}
	i := leg.index
	if leg.last {
		i = len(n.kids) - 1 - i
	}
	return max(i, 0), n.typ == jsonSmallArray && i >= 0 && i < len(n.kids)
}

// apply changes the element of n that the leg leads to.
func (n *jsonNode) apply(op byte, leg jsonLeg, value *jsonNode) bool {
	i, found := n.find(leg)
	switch op {
	case jsonReplace:
		if found {
			n.kids[i] = value
		}
		return found
	case jsonRemove:
		if found {
			n.kids = slices.Delete(n.kids, i, i+1)
			if leg.object {
				n.keys = slices.Delete(n.keys, i, i+1)
			}
		}
		return found
	}
	if leg.object {
		if found || n.typ != jsonSmallObject || len(leg.key) > math.MaxUint16 {
			return false
		}
		n.keys = slices.Insert(n.keys, i, leg.key)
	} else if n.typ != jsonSmallArray {
		return false
	} else {
		i = min(i, len(n.kids))
	}
	n.kids = slices.Insert(n.kids, i, value)
	return true
}

func (n *jsonNode) depth() int {
	d := 0
	for _, k := range n.kids {
		d = max(d, k.depth())
	}
	return d + 1
}

// measure decides for each container whether it needs offsets of four bytes.
func (n *jsonNode) measure() {
	if n.typ > jsonLargeArray {
		n.size = len(n.scalar)
		return
	}
	for _, k := range n.kids {
		k.measure()
	}
	if n.size = n.bytes(); n.size > math.MaxUint16 {
		n.large = true
		n.size = n.bytes()
	}
}

// bytes returns the size of a container whose elements have been measured.
func (n *jsonNode) bytes() int {
	c := n.view()
	size := 2*c.size + len(n.kids)*c.entry()
	for _, k := range n.keys {
		size += len(k)
	}
	for _, k := range n.kids {
		if !jsonInlined(k.typ, n.large) {
			size += k.size
		}
	}
	return size
}

func (n *jsonNode) view() jsonContainer {
	c := jsonContainer{n: len(n.kids), size: 2, object: n.typ == jsonSmallObject, large: n.large}
	if c.large {
		c.size = 4
	}
	return c
}

// kind is the type to store.
func (n *jsonNode) kind() byte {
	if n.large {
		return n.typ + 1
	}
	return n.typ
}

// append appends the measured value with its type in front.
func (n *jsonNode) append(dst []byte) []byte { return n.appendBody(append(dst, n.kind())) }

func (n *jsonNode) appendBody(dst []byte) []byte {
	if n.typ > jsonLargeArray {
		return append(dst, n.scalar...)
	}
	c := n.view()
	put := func(dst []byte, v int) []byte {
		if c.large {
			return binary.LittleEndian.AppendUint32(dst, uint32(v))
		}
		return binary.LittleEndian.AppendUint16(dst, uint16(v))
	}
	dst = put(put(dst, len(n.kids)), n.size)
	at := 2*c.size + len(n.kids)*c.entry()
	for _, k := range n.keys {
		dst = binary.LittleEndian.AppendUint16(put(dst, at), uint16(len(k)))
		at += len(k)
	}
	for _, k := range n.kids {
		dst = append(dst, k.kind())
		if jsonInlined(k.typ, n.large) {
			dst = append(dst, k.scalar...)
			for i := len(k.scalar); i < c.size; i++ {
				dst = append(dst, 0)
			}
			continue
		}
		dst = put(dst, at)
		at += k.size
	}
	for _, k := range n.keys {
		dst = append(dst, k...)
	}
	for _, k := range n.kids {
		if !jsonInlined(k.typ, n.large) {
			dst = k.appendBody(dst)
		}
	}
	return dst
}
