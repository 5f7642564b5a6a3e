// Package jsonvalue writes values as JSON in the forms that more than one codec has. It starts no
// goroutine, keeps no state and must never allocate but for the growth of the destination.
package jsonvalue
