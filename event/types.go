package event

import "fmt"

// Type codes of TABLE_MAP columns. The values are those of MySQL's
// enum_field_types; 140 and 141 are MariaDB's.
const (
	typeDecimal           = 0 // pre-5.0 DECIMAL, not supported
	typeTiny              = 1
	typeShort             = 2
	typeLong              = 3
	typeFloat             = 4
	typeDouble            = 5
	typeTimestamp         = 7
	typeLongLong          = 8
	typeInt24             = 9
	typeDate              = 10
	typeTime              = 11
	typeDatetime          = 12
	typeYear              = 13
	typeNewDate           = 14
	typeVarchar           = 15
	typeBit               = 16
	typeTimestamp2        = 17
	typeDatetime2         = 18
	typeTime2             = 19
	typeBlobCompressed    = 140
	typeVarcharCompressed = 141
	typeVector            = 242
	typeJSON              = 245
	typeNewDecimal        = 246
	typeEnum              = 247
	typeSet               = 248
	typeTinyBlob          = 249
	typeMediumBlob        = 250
	typeLongBlob          = 251
	typeBlob              = 252
	typeVarString         = 253
	typeString            = 254
	typeGeometry          = 255
)

// NormalizeType reads the metadata of one column from the front of a
// TABLE_MAP's metadata block and returns the column's real type, its
// normalised metadata for [Column].Type and [Column].Meta, and how many bytes
// of the block belong to it.
//
// The normalised metadata is
//
//	CHAR, BINARY (254)              greatest length in bytes, 0..1023
//	VARCHAR, VARBINARY (15)         greatest length in bytes; 253 becomes 15
//	the same COMPRESSED (141)       greatest length in bytes, header byte included
//	TEXT, BLOB (252)                bytes of the length prefix, 1..4; 249..251 become 252
//	the same COMPRESSED (140)       bytes of the length prefix, 1..4
//	GEOMETRY, JSON, VECTOR          bytes of the length prefix, 1..4
//	DECIMAL (246)                   precision<<8 | scale
//	BIT (16)                        number of bits, 1..64
//	ENUM (247)                      bytes of the index, 1 or 2
//	SET (248)                       bytes of the mask, 1..8
//	FLOAT, DOUBLE                   4 or 8
//	TIME, DATETIME, TIMESTAMP (17..19)  fraction digits, 0..6
//	everything else                 0
//
// An unknown type is an error, since the size of its metadata is unknown too.
// How the block is laid out: MySQL, Field::save_field_metadata and
// table_def::table_def; that long CHARs borrow two bits of the type byte:
// bug 37426 there.
func NormalizeType(typ byte, meta []byte) (realType byte, m uint16, n int, err error) {
	n = metaBytes(typ)
	if n < 0 {
		return 0, 0, 0, fmt.Errorf("event: unknown column type %d", typ)
	}
	if len(meta) < n {
		return 0, 0, 0, fmt.Errorf("event: column type %d needs %d bytes of metadata, %d are left", typ, n, len(meta))
	}
	bad := func() error { return fmt.Errorf("event: column type %d has impossible metadata % x", typ, meta[:n]) }
	switch typ {
	case typeVarchar, typeVarString, typeVarcharCompressed:
		m = uint16(meta[0]) | uint16(meta[1])<<8
		if typ == typeVarString {
			typ = typeVarchar
		}
	case typeBit:
		// First the bits beyond whole bytes, then the whole bytes.
		bits := int(meta[1])*8 + int(meta[0])
		if meta[0] > 7 || bits < 1 || bits > 64 {
			return 0, 0, 0, bad()
		}
		m = uint16(bits)
	case typeNewDecimal:
		if meta[0] < 1 || meta[0] > 65 || meta[1] > 38 || meta[1] > meta[0] {
			return 0, 0, 0, bad()
		}
		m = uint16(meta[0])<<8 | uint16(meta[1])
	case typeString, typeEnum, typeSet:
		b0, length := meta[0], int(meta[1])
		if b0&0x30 != 0x30 {
			// Two bits of the length live, inverted, in the type byte.
			length |= int(b0&0x30^0x30) << 4
			b0 |= 0x30
		}
		switch b0 {
		case typeString, typeVarString:
			typ = typeString
		case typeEnum:
			if length != 1 && length != 2 {
				return 0, 0, 0, bad()
			}
			typ = typeEnum
		case typeSet:
			if length < 1 || length > 8 {
				return 0, 0, 0, bad()
			}
			typ = typeSet
		default:
			return 0, 0, 0, bad()
		}
		m = uint16(length)
	case typeBlob, typeTinyBlob, typeMediumBlob, typeLongBlob, typeBlobCompressed, typeGeometry, typeJSON, typeVector:
		if meta[0] < 1 || meta[0] > 4 {
			return 0, 0, 0, bad()
		}
		m = uint16(meta[0])
		if typ == typeTinyBlob || typ == typeMediumBlob || typ == typeLongBlob {
			typ = typeBlob
		}
	case typeFloat, typeDouble:
		if want := byte(4 * (typ - typeFloat + 1)); meta[0] != want {
			return 0, 0, 0, bad()
		}
		m = uint16(meta[0])
	case typeTime2, typeDatetime2, typeTimestamp2:
		if meta[0] > 6 {
			return 0, 0, 0, bad()
		}
		m = uint16(meta[0])
	}
	return typ, m, n, nil
}

// metaBytes returns the size of a type's metadata in the TABLE_MAP, -1 for an
// unknown type.
func metaBytes(typ byte) int {
	switch typ {
	case typeTiny, typeShort, typeLong, typeLongLong, typeInt24, typeYear,
		typeDate, typeNewDate, typeTime, typeDatetime, typeTimestamp:
		return 0
	case typeFloat, typeDouble, typeTime2, typeDatetime2, typeTimestamp2,
		typeBlob, typeTinyBlob, typeMediumBlob, typeLongBlob, typeBlobCompressed,
		typeGeometry, typeJSON, typeVector:
		return 1
	case typeVarchar, typeVarString, typeVarcharCompressed, typeBit, typeNewDecimal,
		typeString, typeEnum, typeSet:
		return 2
	}
	return -1
}
