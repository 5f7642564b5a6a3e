// Package testenv gives integration tests real servers: MySQL and MariaDB, Kafka, Pulsar and ZooKeeper
// on loopback, started by the scripts in the repository's folder testenv without containers.
//
// MySQL, Kafka, Pulsar and ZooKeeper return servers that all tests share, of all packages: the first user
// starts one, under a file lock, and later users find it running. They live below .testenv in the
// repository, or in $BINLOGMQ_TESTENV_DIR, until "testenv/servers.sh down" ends them; make test does
// that. A test on a shared server takes names of its own from [Name] and never stops the server nor changes
// its global settings. NewMySQL, NewKafka, NewPulsar, NewPulsarCluster and NewZooKeeper start one for a single test, with settings of its
// own; it may be killed, paused and restarted, and is wiped when the test ends.
//
// Environment variables point at servers that somebody already runs, in place of the shared ones:
//
//	BINLOGMQ_TEST_MYSQL, BINLOGMQ_TEST_MARIADB, ..._MARIADB11, ..._MYSQL56, ..._MARIADB102, ..._MARIADB114
//	                          user:password@host:port, an account with all privileges; the binlog is on, with
//	                          binlog_row_metadata=FULL where the server knows it, and GTIDs
//	BINLOGMQ_TEST_REPL        user:password of the account that replicates, on all of these; default repl:repl
//	BINLOGMQ_TEST_KAFKA       host:port[,host:port...]
//	BINLOGMQ_TEST_PULSAR      service URL, a space, admin URL; deduplication is on
//	BINLOGMQ_TEST_ZOOKEEPER   host:port[,host:port...]
//
// A server that cannot be had fails the test with the server's own last lines; no test is ever skipped
// for it. The package owns no goroutine that outlives a call. It must never be imported by anything but tests.
package testenv
