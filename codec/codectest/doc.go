// Package codectest holds what every codec has to pass, and the rows to try it
// on: every class of column with its edge values, all operations, partial row images, and the
// 12-column table that benchmarks use.
//
// It is for tests only and starts no goroutine that outlives a call.
package codectest
