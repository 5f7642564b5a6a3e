// Package jsontext appends JSON strings to byte slices.
//
// It exists because the codecs write JSON by appending: no reflection, no
// encoder state, no allocation beyond the growth of the destination. Strings
// come out byte for byte as encoding/json writes them with HTML escaping off;
// a fuzz target holds it to that.
//
// The package starts no goroutine, keeps no state and never fails: whatever the
// bytes are, the result is a valid JSON string in valid UTF-8.
package jsontext
