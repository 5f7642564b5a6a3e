// Package bounds proves that memory is bounded by configuration (I9): with a broker that is down, a transaction
// of gigabytes, rows of a hundred megabytes, compressed transactions and ten thousand tables.
//
// Its tests need real servers and the build tag integration. They read what the operating system says of
// the program, built as for users: the race detector multiplies memory. By default they run a short form;
// BINLOGMQ_BOUNDS=long gives the sizes that the documentation names.
package bounds
