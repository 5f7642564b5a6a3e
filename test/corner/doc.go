// Package corner runs SQL that pipelines like this one have stumbled over through the whole
// program, and compares what it publishes with what it should: values, types, transactions, DDL
// and features of the servers' logs. The cases are data, in testdata; see [parse] for their form.
//
// The tests need real servers and build tag integration.
package corner
