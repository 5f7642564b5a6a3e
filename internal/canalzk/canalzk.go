// Package canalzk knows the nodes that Canal's servers and clients keep in ZooKeeper: their paths
// (ZookeeperPathUtils) and their JSON, spelling included.
package canalzk

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Root is below what Canal keeps its nodes. Its own clients know no other.
const Root = "/otter/canal"

// maxNode is the most bytes of a node that are looked at. Those of Canal have some hundred, cursors with long sets of GTIDs more.
const maxNode = 1 << 20

// Cluster lists the servers.
func Cluster(root string) string { return root + "/cluster" }

// Destination holds what belongs to a destination.
func Destination(root, destination string) string { return root + "/destinations/" + destination }

// DestinationCluster lists the servers that may serve a destination.
func DestinationCluster(root, destination string) string {
	return Destination(root, destination) + "/cluster"
}

// Running says which server serves a destination.
func Running(root, destination string) string { return Destination(root, destination) + "/running" }

// Client holds what belongs to a client of a destination.
func Client(root, destination string, client int16) string {
	return Destination(root, destination) + "/" + strconv.Itoa(int(client))
}

// ClientRunning says which process works as the client.
func ClientRunning(root, destination string, client int16) string {
	return Client(root, destination, client) + "/running"
}

// Cursor is where the client stands.
func Cursor(root, destination string, client int16) string {
	return Client(root, destination, client) + "/cursor"
}

// Filter is the client's filter, as text.
func Filter(root, destination string, client int16) string {
	return Client(root, destination, client) + "/filter"
}

// RunningData is the content of the running nodes. Active is true where it is left out.
type RunningData struct {
	Active   bool   `json:"active"`
	Address  string `json:"address"`
	ClientID *int16 `json:"clientId,omitempty"` // of a client's node
}

// Encode writes the node.
func (r RunningData) Encode() []byte {
	b, _ := json.Marshal(r) // a struct of plain fields
	return b
}

// ParseRunning reads a running node of a server or a client.
func ParseRunning(data []byte) (RunningData, error) {
	r := RunningData{Active: true}
	if len(data) > maxNode {
		return r, fmt.Errorf("%d bytes are too many", len(data))
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, err
	}
	return r, nil
}

// CheckAddress says whether Canal's clients can use an address: a host name or IPv4 address, and a port. They
// part it at its only colon.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q has no port", address)
	}
	if host == "" || strings.ContainsAny(host, ":/ ") {
		return fmt.Errorf("%q: Canal's clients need a host name or an IPv4 address", address)
	}
	return nil
}

type logPosition struct {
	Type     string        `json:"@type"`
	Identity logIdentity   `json:"identity"`
	Position entryPosition `json:"postion"` // Canal's spelling
}

type logIdentity struct {
	SlaveID       int64         `json:"slaveId"`
	SourceAddress sourceAddress `json:"sourceAddress"`
}

type sourceAddress struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
}

type entryPosition struct {
	GTID        string `json:"gtid"`
	Included    bool   `json:"included"`
	JournalName string `json:"journalName"`
	Position    int64  `json:"position"`
	ServerID    int64  `json:"serverId,omitempty"`
	Timestamp   int64  `json:"timestamp"`
}

const logPositionType = "com.alibaba.otter.canal.protocol.position.LogPosition"

// CursorData is what a cursor's node says (LogPosition). Of Canal it is an event that its client has dealt with, or the first one that it
// shall have, whatever Included says.
type CursorData struct {
	File      string
	Offset    int64 // where the event starts; of a node that EncodeCursor wrote, where a transaction ends
	GTID      string
	Included  bool
	ServerID  int64     // of the event's header; 0 in what EncodeCursor writes, and what a Canal of before June 2016 wrote
	Timestamp time.Time // of the event's header
}

// EncodeCursor writes a cursor's node, of the source at the address host:port.
func EncodeCursor(source string, c CursorData) ([]byte, error) {
	host, text, err := net.SplitHostPort(source)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	return json.Marshal(logPosition{
		Type:     logPositionType,
		Identity: logIdentity{SlaveID: -1, SourceAddress: sourceAddress{host, port}},
		Position: entryPosition{GTID: c.GTID, Included: c.Included, JournalName: c.File, Position: c.Offset, ServerID: c.ServerID, Timestamp: c.Timestamp.UnixMilli()},
	})
}

// ParseCursor reads a cursor's node as Canal or EncodeCursor wrote it.
func ParseCursor(data []byte) (CursorData, error) {
	if len(data) > maxNode {
		return CursorData{}, fmt.Errorf("%d bytes are too many", len(data))
	}
	var l logPosition
	if err := json.Unmarshal(data, &l); err != nil {
		return CursorData{}, err
	}
	return l.data()
}

func (l *logPosition) data() (CursorData, error) {
	p := &l.Position
	if p.JournalName == "" && p.GTID == "" || p.Position < 0 {
		return CursorData{}, errors.New("no position")
	}
	return CursorData{p.JournalName, p.Position, p.GTID, p.Included, p.ServerID, time.UnixMilli(p.Timestamp)}, nil
}

// ClientData is what Canal has kept of a client.
type ClientData struct {
	ID     int16
	Filter string
	Cursor CursorData
}

// ParseMetaFile reads the file meta.dat, in which a Canal without ZooKeeper keeps the clients of a destination (FileMixedMetaManager). Clients
// that have subscribed and never got anything have no cursor, and are left out.
func ParseMetaFile(data []byte) (destination string, clients []ClientData, err error) {
	var f struct {
		Destination string `json:"destination"`
		Clients     []struct {
			Identity struct {
				ID     *int16 `json:"clientId"`
				Filter string `json:"filter"`
			} `json:"clientIdentity"`
			Cursor *logPosition `json:"cursor"`
		} `json:"clientDatas"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return "", nil, err
	}
	if f.Destination == "" {
		return "", nil, errors.New("no destination")
	}
	for i, c := range f.Clients {
		if c.Identity.ID == nil {
			return "", nil, fmt.Errorf("client %d of %d has no id", i+1, len(f.Clients))
		}
		if c.Cursor == nil {
			continue
		}
		cursor, err := c.Cursor.data()
		if err != nil {
			return "", nil, fmt.Errorf("client %d: %w", *c.Identity.ID, err)
		}
		clients = append(clients, ClientData{*c.Identity.ID, c.Identity.Filter, cursor})
	}
	return f.Destination, clients, nil
}
