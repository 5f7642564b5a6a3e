// Package consume reads topics as an ordinary service would: with clients that are not
// the program's own producers.
package consume
