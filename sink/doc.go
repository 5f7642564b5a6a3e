// Package sink defines what a sink is: it publishes messages to one broker
// system, in order per lane, and reports each message's fate exactly once.
//
// Sinks know bytes, not events: this package and the packages below it import
// no other package of ours. A sink owns the goroutines it starts and ends them
// all before Close returns. A sink must never reorder messages of one lane,
// never drop one, and never report success before the broker has persisted it.
package sink
