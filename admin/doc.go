// Package admin serves health and metrics over HTTP, and takes orders for snapshots.
//
// It knows no other part of the program: it asks a function for a [Report] and
// shows it. Metrics are OpenTelemetry instruments that are read at scrape time
// only, so that counting costs the hot path nothing here. Server owns its
// goroutine; Close ends it. Nothing here may block a destination or show a secret.
package admin
