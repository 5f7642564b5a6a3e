package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
)

// version is set by the linker.
var version = ""

// Exit codes; docs/operations.md lists them.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// A usageError is the user's mistake: the program ends with exitUsage.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// A failure has been reported already; only the exit code remains.
var errReported = errors.New("reported")

const usage = `usage: binlogmq COMMAND

  run -c FILE                      read the source and publish until stopped
  check -c FILE                    connect everywhere; list what is missing and how to mend it
  cursor show -c FILE              show the saved cursors
  cursor set -c FILE [--destination D] --at START [--reconcile [--since TIME|begin]] [--yes]
                                   move the cursors of a destination; START as in the configuration's start:
  cursor skip -c FILE [--destination D] --gtid GTID [--yes]
                                   let a destination pass over one transaction that it cannot publish
  cursor new-life -c FILE [--destination D] [--sink S] [--reconcile [--since TIME|begin]] [--yes]
                                   let a sink begin anew at its cursor, where an error asks for it
  cursor forget -c FILE [--destination D] --of SINK|CLIENT [--yes]
                                   delete the cursor of a sink that is not configured any more, or of a client that does not come back
  cursor export -c FILE [--destination D]
                                   write cursors, states and lives as JSON
  cursor import -c FILE --from EXPORT [--destination D] [--yes]
                                   put exported cursors into this configuration's store
  cursor import-canal -c FILE [--destination D] [--from META.DAT | --zookeeper HOST:PORT,...] [--canal-destination D] [--clients ID,...] [--sink S] [--yes]
                                   let the clients of a Canal, or a sink in the place of one, go on where it has left them
  schema show -c FILE              show what is known of the tables' definitions
  schema forget -c FILE [--destination D] [--table SCHEMA.TABLE] [--yes]
                                   have definitions looked up again, after alterations that the log does not hold
  snapshot start -c FILE [--destination D] [--tables P,...] [--where SCHEMA.TABLE=CONDITION]... [--sinks S,...] [--admin URL]
                                   have what tables hold already published beside the stream, by the running process or the next one
  snapshot status -c FILE [--destination D] [--admin URL]
                                   show what is ordered and how far it is
  snapshot cancel -c FILE [--destination D] [--id ID] [--admin URL]
                                   give one snapshot up, or all
  version                          print the version

docs/configuration.md describes the file; config.yaml.example is a start.`

func main() {
	// A first signal asks for a soft stop, a second one cuts it short.
	soft, cancelSoft := context.WithCancel(context.Background())
	hard, cancelHard := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, stopSignals()...)
	go func() {
		<-signals
		cancelSoft()
		<-signals
		cancelHard()
	}()
	code := run(soft, hard, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	cancelHard()
	cancelSoft()
	os.Exit(code)
}

// stopSignals are those that ask for a stop. The end of the terminal is none where it is ignored already, as below nohup; a shell that starts us
// in the background ignores SIGINT, too, but who sends that means us.
func stopSignals() []os.Signal {
	all := []os.Signal{syscall.SIGTERM, os.Interrupt}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// run is the program without the process around it. soft asks it to stop in
// order, hard to stop at once.
func run(soft, hard context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	err := dispatch(soft, hard, args, in, out, errs)
	var wrong usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(out, usage)
		return exitOK
	case errors.Is(err, errReported):
		return exitFailed
	case errors.As(err, &wrong):
		fmt.Fprintf(errs, "binlogmq: %v\n", err)
		return exitUsage
	}
	fmt.Fprintf(errs, "binlogmq: %v\n", err)
	return exitFailed
}

// help is what asks for the usage.
var help = []string{"help", "--help", "-help", "-h"}

func dispatch(soft, hard context.Context, args []string, in io.Reader, out, errs io.Writer) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("a command is needed\n%s", usage)}
	}
	name, rest := args[0], args[1:]
	if (name == "cursor" || name == "schema" || name == "snapshot") && len(rest) > 0 && slices.Contains(help, rest[0]) {
		return flag.ErrHelp // as the commands below them do with it
	}
	switch name {
	case "run":
		return runCommand(soft, hard, rest, out, errs)
	case "check":
		return checkCommand(soft, rest, out, errs)
	case "cursor":
		return cursorCommand(soft, rest, in, out, errs)
	case "schema":
		return schemaCommand(soft, rest, in, out)
	case "snapshot":
		return snapshotCommand(soft, rest, out)
	case "version", "--version", "-version":
		fmt.Fprintln(out, "binlogmq", versionText())
		return nil
	}
	if slices.Contains(help, name) {
		return flag.ErrHelp
	}
	return usageError{fmt.Errorf("unknown command %q\n%s", name, usage)}
}

// flags returns a flag set of one command with the -c that all have.
func flags(command string) (*flag.FlagSet, *string) {
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.SetOutput(io.Discard) // the error says it all
	file := f.String("c", "", "configuration file")
	return f, file
}

func parse(f *flag.FlagSet, file *string, args []string) error {
	if err := f.Parse(args); err != nil {
		return usageError{fmt.Errorf("%s: %w\n%s", f.Name(), err, usage)}
	}
	if f.NArg() > 0 {
		return usageError{fmt.Errorf("%s: %q is not expected\n%s", f.Name(), f.Arg(0), usage)}
	}
	if *file == "" {
		return usageError{fmt.Errorf("%s: -c FILE is needed", f.Name())}
	}
	return nil
}

func versionText() string {
	if version != "" {
		return version
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "unknown"
}
