package event

import "fmt"

// Type codes of TABLE_MAP columns, as [Column].Type has them. The values are those of MySQL's
// enum_field_types; 140 and 141 are MariaDB's.
const (
	TypeDecimal           = 0 // pre-5.0 DECIMAL, not supported
	TypeTiny              = 1
	TypeShort             = 2
	TypeLong              = 3
	TypeFloat             = 4
	TypeDouble            = 5
	TypeTimestamp         = 7
	TypeLongLong          = 8
	TypeInt24             = 9
	TypeDate              = 10
	TypeTime              = 11
	TypeDatetime          = 12
	TypeYear              = 13
	TypeNewDate           = 14
	TypeVarchar           = 15
	TypeBit               = 16
	TypeTimestamp2        = 17
	TypeDatetime2         = 18
	TypeTime2             = 19
	TypeBlobCompressed    = 140
	TypeVarcharCompressed = 141
	TypeVector            = 242
	TypeJSON              = 245
	TypeNewDecimal        = 246
	TypeEnum              = 247
	TypeSet               = 248
	TypeTinyBlob          = 249
	TypeMediumBlob        = 250
	TypeLongBlob          = 251
	TypeBlob              = 252
	TypeVarString         = 253
	TypeString            = 254
	TypeGeometry          = 255
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
	case TypeVarchar, TypeVarString, TypeVarcharCompressed:
		m = uint16(meta[0]) | uint16(meta[1])<<8
		if typ == TypeVarString {
			typ = TypeVarchar
		}
	case TypeBit:
		// First the bits beyond whole bytes, then the whole bytes.
		bits := int(meta[1])*8 + int(meta[0])
		if meta[0] > 7 || bits < 1 || bits > 64 {
			return 0, 0, 0, bad()
		}
		m = uint16(bits)
	case TypeNewDecimal:
		if meta[0] < 1 || meta[0] > 65 || meta[1] > 38 || meta[1] > meta[0] {
			return 0, 0, 0, bad()
		}
		m = uint16(meta[0])<<8 | uint16(meta[1])
	case TypeString, TypeEnum, TypeSet:
		b0, length := meta[0], int(meta[1])
		if b0&0x30 != 0x30 {
			// Two bits of the length live, inverted, in the type byte.
			length |= int(b0&0x30^0x30) << 4
			b0 |= 0x30
		}
		switch b0 {
		case TypeString, TypeVarString:
			typ = TypeString
		case TypeEnum:
			if length != 1 && length != 2 {
				return 0, 0, 0, bad()
			}
			typ = TypeEnum
		case TypeSet:
			if length < 1 || length > 8 {
				return 0, 0, 0, bad()
			}
			typ = TypeSet
		default:
			return 0, 0, 0, bad()
		}
		m = uint16(length)
	case TypeBlob, TypeTinyBlob, TypeMediumBlob, TypeLongBlob, TypeBlobCompressed, TypeGeometry, TypeJSON, TypeVector:
		if meta[0] < 1 || meta[0] > 4 {
			return 0, 0, 0, bad()
		}
		m = uint16(meta[0])
		if typ == TypeTinyBlob || typ == TypeMediumBlob || typ == TypeLongBlob {
			typ = TypeBlob
		}
	case TypeFloat, TypeDouble:
		if want := byte(4 * (typ - TypeFloat + 1)); meta[0] != want {
			return 0, 0, 0, bad()
		}
		m = uint16(meta[0])
	case TypeTime2, TypeDatetime2, TypeTimestamp2:
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
	case TypeTiny, TypeShort, TypeLong, TypeLongLong, TypeInt24, TypeYear,
		TypeDate, TypeNewDate, TypeTime, TypeDatetime, TypeTimestamp:
		return 0
	case TypeFloat, TypeDouble, TypeTime2, TypeDatetime2, TypeTimestamp2,
		TypeBlob, TypeTinyBlob, TypeMediumBlob, TypeLongBlob, TypeBlobCompressed,
		TypeGeometry, TypeJSON, TypeVector:
		return 1
	case TypeVarchar, TypeVarString, TypeVarcharCompressed, TypeBit, TypeNewDecimal,
		TypeString, TypeEnum, TypeSet:
		return 2
	}
	return -1
}
