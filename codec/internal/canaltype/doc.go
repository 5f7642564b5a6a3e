// Package canaltype holds what Canal's formats have in common: how the value of a column is written as
// text, and the numbers and names that stand for column types and statements. It starts no
// goroutine; its functions are safe for concurrent use. It must never decide anything by a value
// that a column's declaration decides.
package canaltype
