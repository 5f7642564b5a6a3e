package canalzk

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/binlogmq/binlogmq/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A cursor that Canal 1.1.x wrote.
const canalCursor = `{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition","identity":{"slaveId":-1,"sourceAddress":{"address":"db","port":3306}},` +
	`"postion":{"gtid":"","included":false,"journalName":"mysql-bin.000023","position":43893,"serverId":1,"timestamp":1536312619000}}`

func TestPaths(t *testing.T) {
	for got, want := range map[string]string{
		Cluster(Root):                     "/otter/canal/cluster",
		DestinationCluster(Root, "shop"):  "/otter/canal/destinations/shop/cluster",
		Running(Root, "shop"):             "/otter/canal/destinations/shop/running",
		ClientRunning(Root, "shop", 1001): "/otter/canal/destinations/shop/1001/running",
		Cursor(Root, "shop", 1001):        "/otter/canal/destinations/shop/1001/cursor",
		Filter(Root, "shop", -3):          "/otter/canal/destinations/shop/-3/filter",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestRunning(t *testing.T) {
	if got := string(RunningData{Active: true, Address: "10.0.0.1:11111"}.Encode()); got != `{"active":true,"address":"10.0.0.1:11111"}` {
		t.Error(got)
	}
	id := int16(1001)
	if got := string(RunningData{Active: true, Address: "10.0.0.1:5", ClientID: &id}.Encode()); got != `{"active":true,"address":"10.0.0.1:5","clientId":1001}` {
		t.Error(got)
	}
	for text, want := range map[string]RunningData{
		`{"active":true,"address":"h:1","cid":1}`: {Active: true, Address: "h:1"},
		`{"address":"h:1"}`:                       {Active: true, Address: "h:1"},
		`{"active":false,"address":"h:1"}`:        {Address: "h:1"},
	} {
		if got, err := ParseRunning([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", `{"active":"yes"}`, `{"clientId":70000}`} {
		if _, err := ParseRunning([]byte(text)); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
}

func TestCursor(t *testing.T) {
	want := CursorData{File: "mysql-bin.000023", Offset: 43893, ServerID: 1, Timestamp: time.UnixMilli(1536312619000)}
	if got, err := ParseCursor([]byte(canalCursor)); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	want.ServerID = 0
	text, err := EncodeCursor("db:3306", want)
	if err != nil {
		t.Fatal(err)
	}
	// All but the server's id, which we do not know.
	const ours = `{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition","identity":{"slaveId":-1,"sourceAddress":{"address":"db","port":3306}},` +
		`"postion":{"gtid":"","included":false,"journalName":"mysql-bin.000023","position":43893,"timestamp":1536312619000}}`
	if string(text) != ours {
		t.Errorf("%s", text)
	}
	if got, err := ParseCursor(text); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "{}", `{"postion":{"journalName":"b","position":-1}}`, `{"postion":{"position":4}}`} {
		if _, err := ParseCursor([]byte(text)); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
	if _, err := EncodeCursor("db", want); err == nil {
		t.Error("an address without port")
	}
}

func TestMetaFile(t *testing.T) {
	const identity = `{"clientId":1001,"destination":"shop","filter":"shop\\\\..*"}`
	cursor := strings.Replace(canalCursor, `"@type":"com.alibaba.otter.canal.protocol.position.LogPosition",`, "", 1)
	for text, want := range map[string][]ClientData{
		`{"clientDatas":[{"clientIdentity":` + identity + `,"cursor":` + cursor + `}],"destination":"shop"}`: {{
			1001, `shop\\..*`, CursorData{File: "mysql-bin.000023", Offset: 43893, ServerID: 1, Timestamp: time.UnixMilli(1536312619000)}}},
		`{"clientDatas":[{"clientIdentity":` + identity + `}],"destination":"shop"}`: nil,
		`{"destination":"shop"}`: nil,
	} {
		if d, got, err := ParseMetaFile([]byte(text)); err != nil || d != "shop" || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, %+v, %v", text, d, got, err)
		}
	}
	for _, text := range []string{
		"", "1", "{}", `{"clientDatas":[]}`, `{"clientDatas":[{"cursor":` + cursor + `}],"destination":"shop"}`,
		`{"clientDatas":[{"clientIdentity":` + identity + `,"cursor":{"postion":{"position":4}}}],"destination":"shop"}`,
		`{"clientDatas":[{"clientIdentity":{"clientId":70000}}],"destination":"shop"}`,
	} {
		if _, _, err := ParseMetaFile([]byte(text)); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	for address, ok := range map[string]bool{
		"10.0.0.1:11111": true, "canal-1.example:1": true, "[::1]:11111": false, "h": false, ":11111": false, "h:0": false, "h:http": false, "h:70000": false, "a/b:1": false,
	} {
		if err := CheckAddress(address); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// FuzzNodes: what anybody writes into Canal's nodes is read or refused, and what was read is written the same again.
func FuzzNodes(f *testing.F) {
	f.Add([]byte(canalCursor))
	f.Add([]byte(`{"active":true,"address":"10.0.0.1:11111","clientId":1001}`))
	f.Add([]byte(`{"clientDatas":[{"clientIdentity":{"clientId":1001,"destination":"d"},"cursor":` + canalCursor + `}],"destination":"d"}`))
	f.Add([]byte(`{"active":false,"address":"10.0.0.1:11111","cid":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := ParseRunning(data); err == nil {
			again, err := ParseRunning(r.Encode())
			if err != nil || again.Active != r.Active || again.Address != r.Address || (again.ClientID == nil) != (r.ClientID == nil) {
				t.Errorf("%s: %+v, then %+v (%v)", data, r, again, err)
			}
		}
		_, _, _ = ParseMetaFile(data)
		if c, err := ParseCursor(data); err == nil {
			text, err := EncodeCursor("db:3306", c)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := ParseCursor(text); err != nil || !again.Timestamp.Equal(c.Timestamp) || again.File != c.File || again.Offset != c.Offset || again.GTID != c.GTID {
				t.Errorf("%s: %+v, then %+v (%v)", data, c, again, err)
			}
		}
	})
}
