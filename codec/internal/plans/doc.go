// Package plans remembers what a codec has worked out for a table: names
// already escaped, constant fragments, how each column is written.
//
// The key is the table's pointer: a table is immutable, and a changed definition is a
// new one. The cache is bounded, so tables that change for ever do not pile up:
// it keeps two generations and drops the older one when the younger is full.
package plans
