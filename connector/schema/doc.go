// Package schema builds tables from what TABLE_MAP events say about them, and
// adds what only information_schema knows.
//
// It starts no goroutine; queries go through a [Catalog] that its user supplies.
// It must never guess a name (I6): a TABLE_MAP without names is refused, or, where the user
// accepts that risk, given information_schema's names if every column agrees.
package schema
