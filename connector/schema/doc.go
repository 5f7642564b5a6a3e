// Package schema builds tables from what TABLE_MAP events say about them, and
// adds what only the definitions tell that it keeps in a [History].
//
// It starts no goroutine; questions go through a [Source] that its user supplies.
// It must never guess a name (I6): a TABLE_MAP without names is given those of the definition that is proven to hold
// at its place if every column agrees, else it is refused.
package schema
