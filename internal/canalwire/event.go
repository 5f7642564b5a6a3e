package canalwire

// EventType is Canal's EventType (EntryProtocol.proto).
type EventType int32

// The event types that are used.
const (
	Insert   EventType = 1
	Update   EventType = 2
	Delete   EventType = 3
	Create   EventType = 4
	Alter    EventType = 5
	Erase    EventType = 6
	Query    EventType = 7
	Truncate EventType = 8
	Rename   EventType = 9
	CIndex   EventType = 10
	DIndex   EventType = 11
)

// String returns Canal's name.
func (t EventType) String() string {
	switch t {
	case Insert:
		return "INSERT"
	case Update:
		return "UPDATE"
	case Delete:
		return "DELETE"
	case Create:
		return "CREATE"
	case Alter:
		return "ALTER"
	case Erase:
		return "ERASE"
	case Truncate:
		return "TRUNCATE"
	case Rename:
		return "RENAME"
	case CIndex:
		return "CINDEX"
	case DIndex:
		return "DINDEX"
	}
	return "QUERY"
}
