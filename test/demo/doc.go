// Demo shows binlogmq at work: it fills a small shop's tables in MySQL, runs bin/binlogmq into Kafka and into
// Pulsar, and prints some of the messages as ordinary consumers of both receive them, and the counts. It goes on
// until Ctrl-C; with -oneshot it commits a fixed amount of work and ends with 0 only if every committed row change
// arrived exactly once, in order of its key, in both. run.sh beside it starts the servers.
package main
