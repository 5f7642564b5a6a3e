// Package process builds and runs the program as a child of a test, as an
// operator would: a configuration file, signals, and its HTTP interface.
//
// It owns one goroutine a child, which ends with it.
package process
