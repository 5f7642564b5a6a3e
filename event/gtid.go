package event

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// GTID names one transaction. The same type serves both flavours: MySQL's
// (SID, Tag and Seq) and MariaDB's (Domain, Server and Seq). The zero GTID
// names none. GTIDs are comparable with ==.
type GTID struct {
	SID    [16]byte // MySQL: server UUID; zero for MariaDB
	Tag    string   // MySQL 8.3 and later: tag in lower case, mostly empty
	Domain uint32   // MariaDB: replication domain
	Server uint32   // MariaDB: server id
	Seq    uint64   // number of the transaction, from 1
}

// maxGNO is the highest transaction number of MySQL (GNO_END - 1 in its rpl_gtid.h).
const maxGNO = math.MaxInt64 - 1

// IsZero reports whether g names no transaction.
func (g GTID) IsZero() bool { return g == GTID{} }

// IsMariaDB reports whether g is of MariaDB's flavour; false for the zero GTID.
func (g GTID) IsMariaDB() bool { return g.SID == [16]byte{} && !g.IsZero() }

// String returns g as its server writes it, "uuid:7", "uuid:tag:7" or "0-1-7";
// the zero GTID gives "".
func (g GTID) String() string {
	if g.IsZero() {
		return ""
	}
	return string(g.Append(make([]byte, 0, 56)))
}

// Append appends the text of g, as String returns it, to dst.
func (g GTID) Append(dst []byte) []byte {
	switch {
	case g.IsZero():
		return dst
	case g.IsMariaDB():
		dst = strconv.AppendUint(dst, uint64(g.Domain), 10)
		dst = append(dst, '-')
		dst = strconv.AppendUint(dst, uint64(g.Server), 10)
		dst = append(dst, '-')
	default:
		dst = appendUUID(dst, g.SID)
		dst = append(dst, ':')
		if g.Tag != "" {
			dst = append(dst, g.Tag...)
			dst = append(dst, ':')
		}
	}
	return appendUint(dst, g.Seq)
}

// MarshalText implements encoding.TextMarshaler.
func (g GTID) MarshalText() ([]byte, error) { return g.Append(nil), nil }

// UnmarshalText implements encoding.TextUnmarshaler; empty text gives the zero GTID.
func (g *GTID) UnmarshalText(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		*g = GTID{}
		return nil
	}
	v, err := ParseGTID(string(text))
	if err == nil {
		*g = v
	}
	return err
}

// ParseGTID parses one GTID of either flavour.
func ParseGTID(s string) (GTID, error) {
	set, err := ParseGTIDSet(s)
	if err != nil {
		return GTID{}, err
	}
	switch {
	case len(set.mysql) == 1 && len(set.maria) == 0:
		m := &set.mysql[0]
		if len(m.ranges) == 1 && m.ranges[0].end == m.ranges[0].first+1 {
			return GTID{SID: m.sid, Tag: m.tag, Seq: m.ranges[0].first}, nil
		}
	case len(set.mysql) == 0 && len(set.maria) == 1:
		return set.maria[0].gtid(), nil
	}
	return GTID{}, fmt.Errorf("GTID %q: not exactly one transaction", s)
}

// gtidRange is the transactions first to end-1.
type gtidRange struct{ first, end uint64 }

// sidSet is what a GTIDSet holds of one MySQL server UUID and tag: sorted
// ranges, neither touching nor overlapping, at least one.
type sidSet struct {
	sid    [16]byte
	tag    string
	ranges []gtidRange
}

// replicaSeq is the highest transaction seen of one MariaDB domain and server.
type replicaSeq struct {
	domain, server uint32
	seq            uint64
}

func (r replicaSeq) gtid() GTID { return GTID{Domain: r.domain, Server: r.server, Seq: r.seq} }

// GTIDSet is a set of transactions. The zero value is the empty set, of either flavour.
//
// For MySQL it holds ranges per server UUID and tag. For MariaDB it is a
// replica's state: per domain the highest number seen of each server, and which
// server wrote last; all lower numbers of that server count as contained.
//
// A GTIDSet is a small value over shared memory: a copy made by assignment must
// not be used beside the original once [GTIDSet.Add] is called on either; use
// [GTIDSet.Clone]. All other methods leave the set as it is.
type GTIDSet struct {
	mysql []sidSet     // sorted by SID and tag
	maria []replicaSeq // sorted by domain; in a domain the server that wrote last comes last
}

// IsEmpty reports whether the set holds no transaction.
func (s GTIDSet) IsEmpty() bool { return len(s.mysql) == 0 && len(s.maria) == 0 }

// IsMariaDB reports whether the set holds transactions of MariaDB's flavour.
func (s GTIDSet) IsMariaDB() bool { return len(s.maria) > 0 }

// IsMySQL reports whether the set holds transactions of MySQL's flavour.
func (s GTIDSet) IsMySQL() bool { return len(s.mysql) > 0 }

// Clone returns a copy that shares no memory with s.
func (s GTIDSet) Clone() GTIDSet {
	c := GTIDSet{mysql: slices.Clone(s.mysql), maria: slices.Clone(s.maria)}
	for i := range c.mysql {
		c.mysql[i].ranges = slices.Clone(c.mysql[i].ranges)
	}
	return c
}

// Add adds one transaction in place. The next number of a known server costs
// no allocation. The zero GTID is ignored, so is a MySQL number outside
// 1 to 2^63-2, which no server writes.
func (s *GTIDSet) Add(g GTID) {
	switch {
	case g.IsZero():
	case g.IsMariaDB():
		s.addMaria(replicaSeq{g.Domain, g.Server, g.Seq})
	case g.Seq >= 1 && g.Seq <= maxGNO:
		s.addRange(g.SID, g.Tag, gtidRange{g.Seq, g.Seq + 1})
	}
}

func (s *GTIDSet) addRange(sid [16]byte, tag string, r gtidRange) {
	i, ok := s.find(sid, tag)
	if !ok {
		s.mysql = slices.Insert(s.mysql, i, sidSet{sid: sid, tag: tag, ranges: []gtidRange{r}})
		return
	}
	m := &s.mysql[i]
	if last := &m.ranges[len(m.ranges)-1]; r.first >= last.first && r.first <= last.end {
		last.end = max(last.end, r.end)
		return
	}
	m.ranges = addRange(m.ranges, r)
}

// addRange merges r into the sorted ranges rs, in place where there is room.
func addRange(rs []gtidRange, r gtidRange) []gtidRange {
	// All ranges from i to j-1 touch or overlap r.
	i, _ := slices.BinarySearchFunc(rs, r.first, func(a gtidRange, first uint64) int { return cmp.Compare(a.end, first) })
	j := i
	for j < len(rs) && rs[j].first <= r.end {
		r.first, r.end = min(r.first, rs[j].first), max(r.end, rs[j].end)
		j++
	}
	return slices.Replace(rs, i, j, r)
}

func (s *GTIDSet) addMaria(r replicaSeq) {
	i := s.domain(r.domain)
	end := i
	at := -1
	for end < len(s.maria) && s.maria[end].domain == r.domain {
		if s.maria[end].server == r.server {
			at = end
		}
		end++
	}
	switch {
	case at < 0:
		s.maria = slices.Insert(s.maria, end, r)
	case s.maria[at].seq < r.seq:
		copy(s.maria[at:end], s.maria[at+1:end]) // this server wrote last
		s.maria[end-1] = r
	}
}

func compareSID(a *sidSet, sid *[16]byte, tag string) int {
	if c := bytes.Compare(a.sid[:], sid[:]); c != 0 {
		return c
	}
	return strings.Compare(a.tag, tag)
}

func (s *GTIDSet) find(sid [16]byte, tag string) (int, bool) {
	lo, hi := 0, len(s.mysql)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := compareSID(&s.mysql[mid], &sid, tag); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// domain returns the index of the domain's first entry, or where it would stand.
func (s *GTIDSet) domain(d uint32) int {
	i, _ := slices.BinarySearchFunc(s.maria, d, func(a replicaSeq, d uint32) int { return cmp.Compare(a.domain, d) })
	return i
}

// Contains reports whether the set holds g; true for the zero GTID.
func (s GTIDSet) Contains(g GTID) bool {
	switch {
	case g.IsZero():
		return true
	case g.IsMariaDB():
		return g.Seq <= s.seq(g.Domain, g.Server)
	}
	i, ok := s.find(g.SID, g.Tag)
	if !ok {
		return false
	}
	rs := s.mysql[i].ranges
	j, _ := slices.BinarySearchFunc(rs, g.Seq, func(a gtidRange, n uint64) int {
		if a.end <= n {
			return -1
		}
		return 1
	})
	return j < len(rs) && rs[j].first <= g.Seq
}

func (s *GTIDSet) seq(domain, server uint32) uint64 {
	for i := s.domain(domain); i < len(s.maria) && s.maria[i].domain == domain; i++ {
		if s.maria[i].server == server {
			return s.maria[i].seq
		}
	}
	return 0
}

// ContainsSet reports whether every transaction of o is in s.
func (s GTIDSet) ContainsSet(o GTIDSet) bool { return o.Subtract(s).IsEmpty() }

// Union returns the transactions of both sets, as a new set. The server that
// wrote last in a MariaDB domain is the one of the two with the higher number, as numbers
// rise along a domain.
func (s GTIDSet) Union(o GTIDSet) GTIDSet {
	u := s.Clone()
	for i := range o.mysql {
		for _, r := range o.mysql[i].ranges {
			u.addRange(o.mysql[i].sid, o.mysql[i].tag, r)
		}
	}
	for i := 0; i < len(o.maria); {
		d := o.maria[i].domain
		j := i
		for j < len(o.maria) && o.maria[j].domain == d {
			j++
		}
		last := o.maria[j-1]
		if l, ok := u.lastOf(d); ok && (l.seq > last.seq || l.seq == last.seq && l.server > last.server) {
			last = l
		}
		for _, r := range o.maria[i:j] {
			u.addMaria(r)
		}
		u.writtenLast(d, last.server)
		i = j
	}
	return u
}

// lastOf returns the entry of the server that wrote last in the domain.
func (s *GTIDSet) lastOf(domain uint32) (last replicaSeq, ok bool) {
	for i := s.domain(domain); i < len(s.maria) && s.maria[i].domain == domain; i++ {
		last, ok = s.maria[i], true
	}
	return last, ok
}

// writtenLast moves the server's entry to the end of its domain.
func (s *GTIDSet) writtenLast(domain, server uint32) {
	for i := s.domain(domain); i+1 < len(s.maria) && s.maria[i+1].domain == domain; i++ {
		if s.maria[i].server == server {
			s.maria[i], s.maria[i+1] = s.maria[i+1], s.maria[i]
		}
	}
}

// Subtract returns the transactions of s that o does not hold, as a new set.
// Of MariaDB's flavour it keeps the entries whose number o has not reached.
func (s GTIDSet) Subtract(o GTIDSet) GTIDSet {
	var d GTIDSet
	for i := range s.mysql {
		m := &s.mysql[i]
		var not []gtidRange
		if j, ok := o.find(m.sid, m.tag); ok {
			not = o.mysql[j].ranges
		}
		if rs := subtractRanges(m.ranges, not); len(rs) > 0 {
			d.mysql = append(d.mysql, sidSet{m.sid, m.tag, rs})
		}
	}
	for _, r := range s.maria {
		if o.seq(r.domain, r.server) < r.seq {
			d.maria = append(d.maria, r)
		}
	}
	return d
}

// Intersect returns the transactions that both sets hold, as a new set. Of MariaDB's flavour that is the state at the earlier
// of two places in one log; where neither is, the server that wrote last in a domain is the one with the lowest number, so that
// reading on from there shows all that the result lacks.
func (s GTIDSet) Intersect(o GTIDSet) GTIDSet {
	var both GTIDSet
	for i := range s.mysql {
		m := &s.mysql[i]
		if j, ok := o.find(m.sid, m.tag); ok {
			if rs := subtractRanges(m.ranges, subtractRanges(m.ranges, o.mysql[j].ranges)); len(rs) > 0 {
				both.mysql = append(both.mysql, sidSet{m.sid, m.tag, rs})
			}
		}
	}
	for a := s.maria; len(a) > 0; {
		n := 1
		for n < len(a) && a[n].domain == a[0].domain {
			n++
		}
		both.maria = append(both.maria, intersectDomain(a[:n], o.inDomain(a[0].domain))...)
		a = a[n:]
	}
	return both
}

// inDomain returns the entries of a MariaDB domain.
func (s *GTIDSet) inDomain(domain uint32) []replicaSeq {
	i := s.domain(domain)
	j := i
	for j < len(s.maria) && s.maria[j].domain == domain {
		j++
	}
	return s.maria[i:j]
}

func intersectDomain(a, b []replicaSeq) []replicaSeq {
	in := func(a, b []replicaSeq) bool { return GTIDSet{maria: b}.ContainsSet(GTIDSet{maria: a}) }
	switch {
	case in(a, b):
		return a
	case in(b, a):
		return b
	}
	var both []replicaSeq
	for _, r := range a {
		for _, x := range b {
			if x.server == r.server {
				r.seq = min(r.seq, x.seq)
				both = append(both, r)
			}
		}
	}
	slices.SortStableFunc(both, func(a, b replicaSeq) int { return cmp.Compare(b.seq, a.seq) })
	return both
}

func subtractRanges(a, b []gtidRange) []gtidRange {
	var out []gtidRange
	for _, r := range a {
		for len(b) > 0 && b[0].end <= r.first {
			b = b[1:]
		}
		for _, x := range b {
			if x.first >= r.end || r.first >= r.end {
				break
			}
			if x.first > r.first {
				out = append(out, gtidRange{r.first, x.first})
			}
			r.first = max(r.first, x.end)
		}
		if r.first < r.end {
			out = append(out, r)
		}
	}
	return out
}

// Equal reports whether both sets hold the same transactions; of MariaDB's
// flavour the same server must also have written last in each domain.
func (s GTIDSet) Equal(o GTIDSet) bool {
	return slices.EqualFunc(s.mysql, o.mysql, func(a, b sidSet) bool {
		return a.sid == b.sid && a.tag == b.tag && slices.Equal(a.ranges, b.ranges)
	}) && len(s.maria) == len(o.maria) && s.ContainsSet(o) && o.ContainsSet(s) && slices.Equal(s.lastOfDomains(), o.lastOfDomains())
}

func (s GTIDSet) lastOfDomains() []replicaSeq {
	var out []replicaSeq
	for i, r := range s.maria {
		if i+1 == len(s.maria) || s.maria[i+1].domain != r.domain {
			out = append(out, r)
		}
	}
	return out
}

// LastOfDomains returns, of MariaDB's flavour, the last transaction of each domain.
func (s GTIDSet) LastOfDomains() GTIDSet { return GTIDSet{maria: s.lastOfDomains()} }

// Behind tells whether o ends with a higher number than s in a MariaDB domain that both know.
func (s GTIDSet) Behind(o GTIDSet) bool {
	return slices.ContainsFunc(o.lastOfDomains(), func(r replicaSeq) bool {
		last, ok := s.lastOf(r.domain)
		return ok && last.seq < r.seq
	})
}

// ConnectState returns the last transaction of each MariaDB domain, as
// @slave_connect_state and gtid_slave_pos take it; "" when there is none.
func (s GTIDSet) ConnectState() string {
	return GTIDSet{maria: s.lastOfDomains()}.String()
}

// String returns the set in its server's own form, for instance
// "uuid:1-5:7:tag:1-3,uuid2:1" or "0-1-7,0-2-9,1-1-3", sorted by UUID and tag
// or by domain; servers of a MariaDB domain in the order in which they wrote.
func (s GTIDSet) String() string {
	if s.IsEmpty() {
		return ""
	}
	return string(s.Append(nil))
}

// Append appends the text of the set, as String returns it, to dst.
func (s GTIDSet) Append(dst []byte) []byte {
	start := len(dst)
	for i := range s.mysql {
		m := &s.mysql[i]
		if i == 0 || s.mysql[i-1].sid != m.sid {
			if len(dst) > start {
				dst = append(dst, ',')
			}
			dst = appendUUID(dst, m.sid)
		}
		if m.tag != "" {
			dst = append(dst, ':')
			dst = append(dst, m.tag...)
		}
		for _, r := range m.ranges {
			dst = append(dst, ':')
			dst = strconv.AppendUint(dst, r.first, 10)
			if r.end > r.first+1 {
				dst = append(dst, '-')
				dst = strconv.AppendUint(dst, r.end-1, 10)
			}
		}
	}
	for _, r := range s.maria {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = r.gtid().Append(dst)
	}
	return dst
}

// MarshalText implements encoding.TextMarshaler.
func (s GTIDSet) MarshalText() ([]byte, error) { return s.Append(nil), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *GTIDSet) UnmarshalText(text []byte) error {
	v, err := ParseGTIDSet(string(text))
	if err == nil {
		*s = v
	}
	return err
}

// ParseGTIDSet parses a GTID set of either flavour as its server writes it;
// empty text gives the empty set. White space around names and numbers and upper-case
// letters are accepted, overlapping ranges are merged.
func ParseGTIDSet(text string) (GTIDSet, error) {
	var s GTIDSet
	if strings.TrimSpace(text) == "" {
		return s, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		var err error
		if strings.Contains(item, ":") {
			err = s.parseMySQL(item)
		} else {
			err = s.parseMaria(item)
		}
		if err != nil {
			return GTIDSet{}, fmt.Errorf("GTID set: %q: %w", clip(item), err)
		}
	}
	return s, nil
}

func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}

var errGTIDForm = errors.New("neither UUID:FIRST-LAST nor DOMAIN-SERVER-NUMBER")

func (s *GTIDSet) parseMaria(item string) error {
	d, rest, ok1 := strings.Cut(item, "-")
	srv, seq, ok2 := strings.Cut(rest, "-")
	if !ok1 || !ok2 {
		return errGTIDForm
	}
	domain, err1 := parseNumber(d, math.MaxUint32)
	server, err2 := parseNumber(srv, math.MaxUint32)
	n, err3 := parseNumber(seq, math.MaxUint64)
	if err := cmp.Or(err1, err2, err3); err != nil {
		return err
	}
	if n == 0 {
		return nil // "0-0-0" stands for nothing seen
	}
	s.addMaria(replicaSeq{uint32(domain), uint32(server), n})
	return nil
}

func (s *GTIDSet) parseMySQL(item string) error {
	id, rest, _ := strings.Cut(item, ":")
	sid, err := ParseUUID(strings.TrimSpace(id))
	if err != nil {
		return err
	}
	if sid == [16]byte{} {
		return errors.New("the UUID is zero")
	}
	tag, ranges := "", 0
	for part := range strings.SplitSeq(rest, ":") {
		part = strings.TrimSpace(part)
		if part != "" && (part[0] < '0' || part[0] > '9') {
			if tag != "" && ranges == 0 {
				return fmt.Errorf("no numbers after tag %q", tag)
			}
			if tag, ranges = strings.ToLower(part), 0; !validTag(tag) {
				return fmt.Errorf("bad tag %q", clip(part))
			}
			continue
		}
		a, b, isRange := strings.Cut(part, "-")
		first, err := parseNumber(strings.TrimSpace(a), maxGNO)
		if err != nil {
			return err
		}
		last := first
		if isRange {
			if last, err = parseNumber(strings.TrimSpace(b), maxGNO); err != nil {
				return err
			}
		}
		if first == 0 || last < first {
			return fmt.Errorf("bad range %q", clip(part))
		}
		ranges++
		s.addRange(sid, tag, gtidRange{first, last + 1})
	}
	if ranges == 0 {
		return errors.New("no numbers at the end")
	}
	return nil
}

func parseNumber(s string, limit uint64) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > limit || s[0] == '+' {
		return 0, fmt.Errorf("bad number %q", clip(s))
	}
	return n, nil
}

// maxTag is the longest tag that a server accepts, in bytes.
const maxTag = 32

func validTag(s string) bool {
	if s == "" || len(s) > maxTag {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// ParseUUID parses a server UUID, with or without dashes.
func ParseUUID(s string) ([16]byte, error) {
	var id [16]byte
	var b [32]byte
	n := 0
	for i := range len(s) {
		if s[i] == '-' && len(s) == 36 && (i == 8 || i == 13 || i == 18 || i == 23) {
			continue
		}
		if n == len(b) {
			return id, fmt.Errorf("bad UUID %q", clip(s))
		}
		b[n] = s[i]
		n++
	}
	if n == len(b) {
		if _, err := hex.Decode(id[:], b[:]); err == nil {
			return id, nil
		}
	}
	return [16]byte{}, fmt.Errorf("bad UUID %q", clip(s))
}

// FormatUUID returns id in the usual form with dashes, in lower case.
func FormatUUID(id [16]byte) string { return string(appendUUID(nil, id)) }

func appendUUID(dst []byte, id [16]byte) []byte {
	text := [36]byte{8: '-', 13: '-', 18: '-', 23: '-'}
	for i, at := range [16]uint8{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34} {
		text[at], text[at+1] = hexDigits[id[i]>>4], hexDigits[id[i]&15]
	}
	return append(dst, text[:]...)
}

// Binary form of MySQL, in COM_BINLOG_DUMP_GTID and the PREVIOUS_GTIDS event
// (Gtid_set::encode in rpl_gtid_set.cc): the number of UUIDs (with a tag each) in 8 bytes, per UUID its
// 16 bytes, the tag when the format has tags, the number of ranges and the
// ranges as first and last+1; all integers of 8 bytes, little-endian. With tags
// the first and the last byte of the leading number are 1 and the number lies
// between; a tag is its doubled length in one byte and its letters.

// AppendBinary appends the MySQL part of the set in the server's binary form,
// with tags only if the set has any. It implements encoding.BinaryAppender and never fails.
func (s GTIDSet) AppendBinary(dst []byte) ([]byte, error) {
	tagged := slices.ContainsFunc(s.mysql, func(m sidSet) bool { return m.tag != "" })
	n := uint64(len(s.mysql))
	if tagged {
		n = 1 | n<<8 | 1<<56
	}
	dst = binary.LittleEndian.AppendUint64(dst, n)
	for i := range s.mysql {
		m := &s.mysql[i]
		dst = append(dst, m.sid[:]...)
		if tagged {
			dst = append(dst, byte(len(m.tag)<<1))
			dst = append(dst, m.tag...)
		}
		dst = binary.LittleEndian.AppendUint64(dst, uint64(len(m.ranges)))
		for _, r := range m.ranges {
			dst = binary.LittleEndian.AppendUint64(dst, r.first)
			dst = binary.LittleEndian.AppendUint64(dst, r.end)
		}
	}
	return dst, nil
}

var errGTIDBinary = errors.New("GTID set: bad binary form")

// DecodeGTIDSet decodes MySQL's binary form of a GTID set; b must hold nothing else.
func DecodeGTIDSet(b []byte) (GTIDSet, error) {
	var s GTIDSet
	if len(b) < 8 {
		return s, errGTIDBinary
	}
	n := binary.LittleEndian.Uint64(b)
	tagged := b[7] == 1
	if tagged {
		n = n << 8 >> 16
	}
	b = b[8:]
	for ; n > 0; n-- {
		if len(b) < 16 {
			return GTIDSet{}, errGTIDBinary
		}
		sid := [16]byte(b)
		b = b[16:]
		tag := ""
		if tagged {
			if len(b) < 1 || b[0]&1 != 0 || int(b[0]>>1) > len(b)-1 {
				return GTIDSet{}, errGTIDBinary
			}
			l := int(b[0] >> 1)
			tag = string(b[1 : 1+l])
			b = b[1+l:]
			if tag != "" && !validTag(tag) {
				return GTIDSet{}, errGTIDBinary
			}
		}
		if len(b) < 8 {
			return GTIDSet{}, errGTIDBinary
		}
		ranges := binary.LittleEndian.Uint64(b)
		b = b[8:]
		if ranges > uint64(len(b)/16) || sid == [16]byte{} {
			return GTIDSet{}, errGTIDBinary
		}
		for ; ranges > 0; ranges-- {
			r := gtidRange{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
			b = b[16:]
			if r.first == 0 || r.end <= r.first || r.end > maxGNO+1 {
				return GTIDSet{}, errGTIDBinary
			}
			s.addRange(sid, tag, r)
		}
	}
	if len(b) > 0 {
		return GTIDSet{}, errGTIDBinary
	}
	return s, nil
}
