package binlog

import "strconv"

// EventType is the type code of a binlog event.
type EventType byte

// The event types. Codes from 160 are MariaDB's.
const (
	TypeUnknown            EventType = 0
	TypeStartV3            EventType = 1
	TypeQuery              EventType = 2
	TypeStop               EventType = 3
	TypeRotate             EventType = 4
	TypeIntvar             EventType = 5
	TypeAppendBlock        EventType = 9
	TypeDeleteFile         EventType = 11
	TypeRand               EventType = 13
	TypeUserVar            EventType = 14
	TypeFormatDescription  EventType = 15
	TypeXID                EventType = 16
	TypeBeginLoadQuery     EventType = 17
	TypeExecuteLoadQuery   EventType = 18
	TypeTableMap           EventType = 19
	TypeWriteRowsV1        EventType = 23
	TypeUpdateRowsV1       EventType = 24
	TypeDeleteRowsV1       EventType = 25
	TypeIncident           EventType = 26
	TypeHeartbeat          EventType = 27
	TypeIgnorable          EventType = 28
	TypeRowsQuery          EventType = 29
	TypeWriteRows          EventType = 30
	TypeUpdateRows         EventType = 31
	TypeDeleteRows         EventType = 32
	TypeGTID               EventType = 33
	TypeAnonymousGTID      EventType = 34
	TypePreviousGTIDs      EventType = 35
	TypeTransactionContext EventType = 36
	TypeViewChange         EventType = 37
	TypeXAPrepare          EventType = 38
	TypePartialUpdateRows  EventType = 39
	TypePayload            EventType = 40
	TypeHeartbeatV2        EventType = 41
	TypeGTIDTagged         EventType = 42

	TypeAnnotateRows           EventType = 160
	TypeBinlogCheckpoint       EventType = 161
	TypeMariaGTID              EventType = 162
	TypeMariaGTIDList          EventType = 163
	TypeStartEncryption        EventType = 164
	TypeQueryCompressed        EventType = 165
	TypeWriteRowsCompressedV1  EventType = 166
	TypeUpdateRowsCompressedV1 EventType = 167
	TypeDeleteRowsCompressedV1 EventType = 168
	TypeWriteRowsCompressed    EventType = 169
	TypeUpdateRowsCompressed   EventType = 170
	TypeDeleteRowsCompressed   EventType = 171
)

var typeNames = map[EventType]string{
	TypeStartV3: "START_V3", TypeQuery: "QUERY", TypeStop: "STOP", TypeRotate: "ROTATE", TypeIntvar: "INTVAR", TypeAppendBlock: "APPEND_BLOCK",
	TypeDeleteFile: "DELETE_FILE", TypeRand: "RAND", TypeUserVar: "USER_VAR", TypeFormatDescription: "FORMAT_DESCRIPTION", TypeXID: "XID",
	TypeBeginLoadQuery: "BEGIN_LOAD_QUERY", TypeExecuteLoadQuery: "EXECUTE_LOAD_QUERY", TypeTableMap: "TABLE_MAP",
	TypeWriteRowsV1: "WRITE_ROWS_V1", TypeUpdateRowsV1: "UPDATE_ROWS_V1", TypeDeleteRowsV1: "DELETE_ROWS_V1", TypeIncident: "INCIDENT",
	TypeHeartbeat: "HEARTBEAT", TypeIgnorable: "IGNORABLE", TypeRowsQuery: "ROWS_QUERY", TypeWriteRows: "WRITE_ROWS", TypeUpdateRows: "UPDATE_ROWS",
	TypeDeleteRows: "DELETE_ROWS", TypeGTID: "GTID", TypeAnonymousGTID: "ANONYMOUS_GTID", TypePreviousGTIDs: "PREVIOUS_GTIDS",
	TypeTransactionContext: "TRANSACTION_CONTEXT", TypeViewChange: "VIEW_CHANGE", TypeXAPrepare: "XA_PREPARE", TypePartialUpdateRows: "PARTIAL_UPDATE_ROWS",
	TypePayload: "TRANSACTION_PAYLOAD", TypeHeartbeatV2: "HEARTBEAT_V2", TypeGTIDTagged: "GTID_TAGGED",
	TypeAnnotateRows: "ANNOTATE_ROWS", TypeBinlogCheckpoint: "BINLOG_CHECKPOINT", TypeMariaGTID: "GTID (MariaDB)", TypeMariaGTIDList: "GTID_LIST",
	TypeStartEncryption: "START_ENCRYPTION", TypeQueryCompressed: "QUERY_COMPRESSED", TypeWriteRowsCompressedV1: "WRITE_ROWS_COMPRESSED_V1",
	TypeUpdateRowsCompressedV1: "UPDATE_ROWS_COMPRESSED_V1", TypeDeleteRowsCompressedV1: "DELETE_ROWS_COMPRESSED_V1",
	TypeWriteRowsCompressed: "WRITE_ROWS_COMPRESSED", TypeUpdateRowsCompressed: "UPDATE_ROWS_COMPRESSED", TypeDeleteRowsCompressed: "DELETE_ROWS_COMPRESSED",
}

// String returns the type's name in the servers' own words and its code.
func (t EventType) String() string {
	if n, ok := typeNames[t]; ok {
		return n + " (" + strconv.Itoa(int(t)) + ")"
	}
	return "unknown (" + strconv.Itoa(int(t)) + ")"
}

// Flags of the event header.
const (
	FlagThread     uint16 = 0x04 // temporary tables of the session are used
	FlagArtificial uint16 = 0x20 // made by the sender, not in the file
	FlagIgnorable  uint16 = 0x80 // whoever does not know the event may pass over it
)

// HeaderSize is the size of an event header in bytes.
const HeaderSize = 19

// Header is the header of every event.
type Header struct {
	Time     uint32 // seconds since 1970 UTC; 0 in artificial events
	Type     EventType
	ServerID uint32 // server that wrote the event first
	Size     uint32 // whole event with header and checksum, in bytes
	LogPos   uint32 // low 32 bits of the offset behind the event; 0 where the server gives none
	Flags    uint16
}

// ParseHeader reads an event header from the front of b, which must hold
// HeaderSize bytes or more.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, short("event header", len(b))
	}
	h := Header{
		Time: le32(b), Type: EventType(b[4]), ServerID: le32(b[5:]),
		Size: le32(b[9:]), LogPos: le32(b[13:]), Flags: le16(b[17:]),
	}
	if h.Size < HeaderSize {
		return Header{}, malformed("event header: size %d", h.Size)
	}
	return h, nil
}
