//go:build race

package jsontext

// With the race detector the compiler makes what a slice is to grow by before it grows it.
const growths = 2
