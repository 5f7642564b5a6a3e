// Package statement reads the head of a SQL statement: what it does, and to
// which table. The formats that carry DDL want both beside the text.
//
// It is no parser of SQL: it understands comments, quoting and the first few
// words, and where these do not settle the question it says so instead of
// guessing (I6). It never fails and never panics, whatever the bytes are.
package statement
