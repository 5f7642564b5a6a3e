// Package connector is the database side of a destination: it connects to
// MySQL or MariaDB as a replica would, reads the binlog and hands on events.
//
// Each [Connector.Read] has a dump connection and a state of its own; it runs in
// its caller's goroutine. The first Read owns one goroutine more, which asks the source
// for its position while Read runs. A lost link is mended inside. The package must never guess: what
// cannot be read, decoded or numbered ends Read with a [StopError] that says what, where and what to do.
//
// # What takes an ordinal
//
// One each: a row change of a captured table, a Query event that is not transaction control, a transaction end. Transaction
// control is BEGIN, COMMIT, ROLLBACK, SAVEPOINT, RELEASE and the XA statements. Every transaction shows
// Begin and End, also one statement alone and one without captured rows.
//
//   - Statements about accounts and foreign servers (CREATE, ALTER, DROP and RENAME USER, ROLE and SERVER, GRANT,
//     REVOKE, SET PASSWORD, SET DEFAULT ROLE) may carry secrets. They take their ordinal and come as DDL events
//     whose Raw is nil: there is nothing to publish or to log. So do routines, triggers, events and statements that name no
//     object, where anything in their text hints at a secret. In other statements the secrets are replaced.
//   - Statement-format DML stops the stream, unless its text names tables that are not captured and nothing else: that takes its
//     ordinal, and comes as a DDL event whose Raw is nil, too. MySQL's list of the databases that it may write to must agree.
//   - Text of other statements is converted to UTF-8 from the client's character set.
//   - MariaDB's two-phase ALTER comes once, when it commits; its first half is a transaction without content.
//   - Rows of a MariaDB SEQUENCE are the server's bookkeeping: known by its eight columns, they are not captured.
//   - The row changes of an XA transaction take their numbers where the log holds XA COMMIT; its XA PREPARE, and an XA
//     ROLLBACK, are transactions without content. Up to 32 MiB of them are kept until then; the rest, and what was prepared
//     before the reader began, is read again from the log, so that neither a restart nor another node needs a spool. Where that part of
//     the log is purged the destination stops.
//   - Where positions are file and offset, the head of each binlog file counts as a transaction without content: the cursor of an
//     idle source moves on when it begins a new file, and purging the old one loses nothing.
//   - Of MariaDB's system-versioned tables what the present rows undergo comes and counts; with Options.AllVersions all that the log holds.
//
// # What tables are called
//
// With binlog_row_metadata=FULL the log alone names and types every column. Without it names come from the schema history, see
// package schema: what information_schema showed at one place in the log, and what each statement has made of it since (package ddl). A
// reader brings the history up to where it starts: it looks through the statements that nobody has seen, or has the history begun anew.
// What FULL does not tell (declared types, tinyint(1), MariaDB's UUID, INET4, INET6 and JSON) comes from there too, where name and type agree. The history is saved
// before rows that were decoded with it are handed on, so that a replay is the same to the byte (I5). Count and order of messages never depend on it; the key
// does where it holds a MariaDB UUID or INET column, which the log shows as BINARY: do not take SELECT away while such tables are captured.
//
// # Positions
//
// By GTID where the source has them on and the position holds a set; else by file and offset, which are counted in
// 64 bits. A position without GTIDs on a server that had executed some there goes on by file and offset, and
// Txn.GTID stays zero, as a set that begins in the middle would claim that nothing came before.
package connector
