// Command binlogmq reads the binlog of MySQL or MariaDB as a replica would and
// publishes every row change to Kafka, Pulsar or a file.
//
//	binlogmq run -c config.yaml                     publish until stopped
//	binlogmq check -c config.yaml                   connect everywhere, list what is missing and how to mend it
//	binlogmq cursor show|set -c config.yaml ...     look at or move saved cursors
//	binlogmq cursor skip -c config.yaml ...         pass over one transaction
//	binlogmq cursor export|import -c config.yaml ...  take cursors from one store to another
//	binlogmq cursor new-life -c config.yaml ...     let a sink begin anew at its cursor
//	binlogmq schema show|forget -c config.yaml ...  look at the tables' definitions, have them looked up again
//	binlogmq version
//
// The package's jobs are to read the configuration, to build the parts in order
// and to stop them in reverse; it is the only one that names concrete sinks,
// codecs and meta stores. Only main calls os.Exit.
package main
