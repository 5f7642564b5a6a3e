//go:build !race

package jsontext

const growths = 1
