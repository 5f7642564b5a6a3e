// Package bench measures the product's figures on real servers and prints one
// line for each: figure NAME VALUE UNIT. Nothing here asserts a time.
//
// Its tests need the build tag bench; make bench runs them with a program
// built without the race detector.
package bench
