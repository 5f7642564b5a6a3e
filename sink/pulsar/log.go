package pulsar

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	clientlog "github.com/apache/pulsar-client-go/pulsar/log"
)

// complaintLife is how long the client's last warning may explain an error.
const complaintLife = time.Minute

// clientLog takes the client's log. All of it becomes debug messages, for the
// client warns of what it then mends itself, and its own debug messages are
// dropped: they hold the content of every message. The last warning is
// kept, because some refusals of the broker are told nowhere else.
type clientLog struct {
	log    *slog.Logger
	memory *complaints
	err    error // of WithError
}

type complaints struct {
	mu   sync.Mutex
	text string
	at   time.Time
}

func newClientLog(l *slog.Logger) *clientLog { return &clientLog{log: l, memory: &complaints{}} }

func (l *clientLog) last() string {
	l.memory.mu.Lock()
	defer l.memory.mu.Unlock()
	if time.Since(l.memory.at) > complaintLife {
		return ""
	}
	return l.memory.text
}

func (l *clientLog) say(warn bool, text string) {
	if l.err != nil {
		text += ": " + l.err.Error()
	}
	if warn {
		l.memory.mu.Lock()
		// What refuses a message for good is not to be buried under what follows from it.
		if !refusesForGood(l.memory.text) || time.Since(l.memory.at) > complaintLife {
			l.memory.text, l.memory.at = text, time.Now()
		}
		l.memory.mu.Unlock()
	}
	l.log.Debug("pulsar client: " + text)
}

func (l *clientLog) enabled() bool { return l.log.Enabled(context.Background(), slog.LevelDebug) }

// Fields may hold message properties; topic and broker are worth showing.
func (l *clientLog) with(fields clientlog.Fields) *clientLog {
	if !l.enabled() {
		return l
	}
	log := l.log
	for _, name := range []string{"topic", "producer_name", "remote_addr"} {
		if v, ok := fields[name]; ok {
			log = log.With(name, fmt.Sprint(v))
		}
	}
	return &clientLog{log: log, memory: l.memory, err: l.err}
}

func (l *clientLog) SubLogger(f clientlog.Fields) clientlog.Logger { return l.with(f) }
func (l *clientLog) WithFields(f clientlog.Fields) clientlog.Entry { return l.with(f) }
func (l *clientLog) WithField(string, interface{}) clientlog.Entry { return l }
func (l *clientLog) Debug(...interface{})                          {}
func (l *clientLog) Debugf(string, ...interface{})                 {}
func (l *clientLog) Warn(args ...interface{})                      { l.say(true, fmt.Sprint(args...)) }
func (l *clientLog) Warnf(format string, args ...interface{}) {
	l.say(true, fmt.Sprintf(format, args...))
}
func (l *clientLog) Error(args ...interface{}) { l.say(true, fmt.Sprint(args...)) }
func (l *clientLog) Errorf(format string, args ...interface{}) {
	l.say(true, fmt.Sprintf(format, args...))
}
func (l *clientLog) WithError(err error) clientlog.Entry { return &clientLog{l.log, l.memory, err} }

func (l *clientLog) Info(args ...interface{}) {
	if l.enabled() {
		l.say(false, strings.TrimSpace(fmt.Sprint(args...)))
	}
}

func (l *clientLog) Infof(format string, args ...interface{}) {
	if l.enabled() {
		l.say(false, fmt.Sprintf(format, args...))
	}
}
