package meta

import (
	"bytes"
	"strings"
	"testing"
)

func TestDocumentRefused(t *testing.T) {
	good, err := EncodeDocument("shop", "schema", []byte(`{ "a": "ü" }`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeDocument("shop", "schema", good); err != nil || string(got) != `{"a":"ü"}` {
		t.Fatalf("%s, %v", got, err)
	}
	for name, bad := range map[string][]byte{
		"empty": nil, "cut": good[:len(good)-5], "another byte": bytes.Replace(good, []byte("ü"), []byte("ö"), 1), "more": append(bytes.Clone(good), '1'),
		"version":     bytes.Replace(good, []byte(`_document":1`), []byte(`_document":2`), 1),
		"destination": bytes.Replace(good, []byte(`"shop"`), []byte(`"shoe"`), 1),
		"nothing in":  []byte(`{"binlogmq_document":1,"destination":"shop","name":"schema","checksum":"","document":null}`),
	} {
		if got, err := DecodeDocument("shop", "schema", bad); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, err := EncodeDocument("shop", "schema", []byte("{")); err == nil {
		t.Error("what is no JSON is encoded")
	}
	if _, err := EncodeDocument("", "schema", []byte("{}")); err == nil || !strings.Contains(err.Error(), "destination") {
		t.Errorf("%v", err)
	}
}

func FuzzDecodeDocument(f *testing.F) {
	good, _ := EncodeDocument("shop", "schema", []byte(`{"a":1}`))
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := DecodeDocument("shop", "schema", data)
		if err != nil {
			return
		}
		again, err := EncodeDocument("shop", "schema", doc)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := DecodeDocument("shop", "schema", again); err != nil || !bytes.Equal(doc, twice) {
			t.Fatalf("%s, %v; want %s", twice, err, doc)
		}
	})
}
