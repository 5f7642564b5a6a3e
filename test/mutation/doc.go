// Command mutation takes the guards of the invariants out of a copy of the tree, one at a
// time, and checks that the tests notice: "make mutants".
//
//	go run ./test/mutation [-run REGEXP] [-list]
//
// For each mutant it prints a row of a Markdown table with the tests that went red. It exits with 1 if a mutant survives, if one does not
// compile, or if the text of a guard is not found exactly once: then the list is out of date.
package main
