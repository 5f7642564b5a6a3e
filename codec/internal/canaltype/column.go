package canaltype

import (
	"github.com/binlogmq/binlogmq/codec/internal/jsonvalue"
	"github.com/binlogmq/binlogmq/event"
)

// Encoding says how a value becomes text.
type Encoding uint8

// The encodings.
const (
	Plain  Encoding = iota // text that never needs escaping in JSON: numbers, dates, UUIDs
	UTF8                   // the raw bytes are text in UTF-8
	Text                   // text that may need escaping
	Number                 // ENUM index, SET mask
	Raw                    // byte string whose raw bytes are its content
	Padded                 // byte string whose content has to be completed first
)

// The constants of java.sql.Types that Canal writes as sqlType.
const (
	javaBit       = -7
	javaTinyint   = -6
	javaBigint    = -5
	javaChar      = 1
	javaDecimal   = 3
	javaInteger   = 4
	javaSmallint  = 5
	javaReal      = 7
	javaDouble    = 8
	javaVarchar   = 12
	javaDate      = 91
	javaTime      = 92
	javaTimestamp = 93
	javaBlob      = 2004
	javaClob      = 2005
)

// EncodingOf tells how values of the column become text. With labels, ENUM and SET are written as SELECT
// shows them, else as the member's number and the bit mask.
func EncodingOf(col *event.Column, labels bool) Encoding {
	switch col.Class {
	case event.ClassChar, event.ClassText:
		if jsonvalue.UTF8(col) {
			return UTF8
		}
		return Text
	case event.ClassJSON:
		return Text
	case event.ClassEnum, event.ClassSet:
		if labels {
			return Text
		}
		return Number
	case event.ClassBinary:
		return Padded
	case event.ClassVarbinary, event.ClassBlob:
		if col.Type == event.TypeBlobCompressed || col.Type == event.TypeVarcharCompressed {
			return Padded
		}
		return Raw
	case event.ClassGeometry:
		return Raw
	}
	return Plain
}

// SQLType is Canal's java.sql.Types number of the column's declaration. Canal
// widens unsigned columns value by value; here the wider type always stands
// for them, so that the type of a column does not change from row to row.
func SQLType(col *event.Column, labels bool) int {
	switch col.Class {
	case event.ClassInt:
		switch col.Type {
		case event.TypeTiny:
			return javaTinyint
		case event.TypeShort:
			return javaSmallint
		case event.TypeLongLong:
			return javaBigint
		}
		return javaInteger
	case event.ClassUint:
		switch col.Type {
		case event.TypeTiny:
			return javaSmallint
		case event.TypeShort, event.TypeInt24:
			return javaInteger
		case event.TypeLong:
			return javaBigint
		}
		return javaDecimal
	case event.ClassFloat:
		return javaReal
	case event.ClassDouble:
		return javaDouble
	case event.ClassDecimal:
		return javaDecimal
	case event.ClassBit:
		return javaBit
	case event.ClassYear, event.ClassJSON, event.ClassVector:
		return javaVarchar
	case event.ClassDate:
		return javaDate
	case event.ClassTime:
		return javaTime
	case event.ClassDatetime, event.ClassTimestamp:
		return javaTimestamp
	case event.ClassChar:
		if col.Type == event.TypeVarchar || col.Type == event.TypeVarcharCompressed {
			return javaVarchar
		}
		return javaChar
	case event.ClassText:
		return javaClob
	case event.ClassEnum:
		if labels {
			return javaVarchar
		}
		return javaInteger
	case event.ClassSet:
		if labels {
			return javaVarchar
		}
		return javaBit
	case event.ClassUUID, event.ClassINET4, event.ClassINET6:
		return javaChar
	}
	return javaBlob
}
