// Package file saves cursors in one directory, a readable file for each
// subscription, for one process.
//
// A record is written to a temporary file, which is synced and renamed over
// the old one, then the directory is synced: at any instant the old record or the new one
// is there, whole (I7). The directory is locked while a [Store] is open.
//
// The package starts no goroutine.
package file
