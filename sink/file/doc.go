// Package file is the sink that writes JSON lines to a file or to standard
// output, so that the tool can be tried with a database alone.
//
// A message is one line:
//
//	{"topic":"shop.orders","key":"1","value":{"id":1},"headers":{"seq":"17"},"sequence":17}
//
// value is the message's value itself when that is a JSON text on one line in
// UTF-8. Any other value stands in value_base64 instead (standard alphabet,
// padded), so do values with blanks around the JSON text and the bare JSON null; a
// null value means a tombstone. key is a string, or null if there is none; a key that is
// not UTF-8 stands in key_base64. headers is an object, in the order of the message.
// Bytes of headers that are not UTF-8 become U+FFFD. With ValuesOnly the line is
// the value alone: the JSON text as it is, with line breaks between its parts taken out;
// null for a tombstone; any other value as a JSON string in base64.
//
// Delivery is at least once: a message is done when its line is written and, in
// a regular file, synced (one sync for all that came meanwhile); after a restart
// what was not acknowledged is appended again, with the same sequence. All
// topics share one file, which has one partition.
//
// A regular file is opened for appending and locked. What follows its last
// line end is what a crash has left of a line, and is cut off, so that a
// reader that begins later never sees half a line. A full disk is waited for: the part of a
// line that was written is cut off again. A pipe that nobody reads any more, or a failed
// sync, ends the session.
//
// The sink owns one goroutine, which writes; Close waits for it. The package must never report success
// before the bytes are written, and never touch a file that others write to.
package file
