// Package ddl follows table definitions through the statements that change them: CREATE, ALTER, RENAME and DROP of
// tables, databases, indexes and sequences, as MySQL 5.6 to 9 and MariaDB 10 to 12 log them.
//
// It is a reader of the clauses that decide which columns a table has, and in which order, of which type, character set and
// primary key. Everything else is passed over. It must never guess (I6): a table whose statement it cannot follow
// becomes [Unknown], and a statement never changes tables that it does not name.
//
// The package starts no goroutine, asks nobody and does not panic, whatever the bytes are.
package ddl
