// Package killpoint names the instants at which the chaos suite kills or freezes the
// program: between a confirmation and the saving of a cursor, in the middle of a
// transaction, in the search of a lane, and so on.
//
// In ordinary builds [Hit] is empty and costs nothing. With the build tag chaos it obeys the
// environment variable BINLOGMQ_KILLPOINT, see hit_chaos.go. It is safe for concurrent use.
package killpoint
