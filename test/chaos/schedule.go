package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// step is one round of a run: something happens to a server or a link, the program runs for a while,
// something happens to the program, and in the next round the servers are mended.
type step struct {
	fault  string
	target int // broker from 1 on, or the link's index
	table  int // of a moved leader
	part   int
	size   int // milliseconds or bytes of a link's fault

	deed  string        // kill, mark, zombie, mark-zombie, stop
	wait  time.Duration // before it, or at most until the mark
	mark  string
	hit   int           // at which hit of the mark
	sleep time.Duration // of a zombie
	both  time.Duration // it runs beside its successor
}

func (s step) String() string {
	text := s.deed
	if s.mark != "" {
		text += fmt.Sprintf(" %s:%d", s.mark, s.hit)
	}
	if s.fault != "" {
		text += fmt.Sprintf(" with %s (%d, %d)", s.fault, s.target, s.size)
	}
	return text
}

// kills says whether the step ends a process with SIGKILL.
func (s step) kills() bool { return s.deed != "stop" }

type weighted struct {
	what   string
	weight int
}

func pick(rng *rand.Rand, list []weighted) string {
	sum := 0
	for _, w := range list {
		sum += w.weight
	}
	n := rng.IntN(sum)
	for _, w := range list {
		if n -= w.weight; n < 0 {
			return w.what
		}
	}
	return ""
}

// A mark and the highest hit at which it is of use: some are passed once in a start-up, some with each request.
type point struct {
	name string
	most int
	of   string // the kind of sink that passes it; "" all
}

var points = []point{
	{"connector.dump", 1, ""},
	{"connector.put", 40, ""}, // often in the middle of a transaction
	{"history.save", 3, ""},   // once a batch with DDL statements
	{"history.saved", 3, ""},
	{"bridge.restored", 2, ""},
	{"bridge.pin", 3, ""},
	{"bridge.acknowledge", 30, ""}, // confirmed, and nobody knows
	{"bridge.acknowledged", 30, ""},
	{"server.save", 6, ""},
	{"server.saved", 6, ""},
	{"file.written", 6, ""},
	{"file.rename", 6, ""},
	{"file.renamed", 6, ""},
	{"kafka.search", 4, "kafka"},
	{"kafka.searched", 8, "kafka"},
	{"kafka.send", 40, "kafka"},
	{"kafka.answer", 40, "kafka"}, // stored, and nobody knows
	{"kafka.commit", 8, "transactional"},
	{"kafka.committed", 8, "transactional"},
	{"pulsar.open", 6, "pulsar"},
	{"pulsar.opened", 6, "pulsar"},
	{"pulsar.receipt", 200, "pulsar"},
	{"pulsar.look", 4, "pulsar"},
	{"wire.open", 6, "wire"},
	{"wire.send", 30, "wire"},
}

// plan decides what happens in a run with so many kills. has tells which of kafka, pulsar, wire, transactional take part;
// links is how many links there are; pauses of the zombies sleep for two minutes.
func plan(rng *rand.Rand, kills, links, pauses int, has map[string]bool) []step {
	faults := []weighted{
		{"", 34}, {"kill dumps", 14}, {"restart database", 2}, {"kill database", 2}, {"freeze database", 2},
		{"cut link", 5}, {"slow link", 5}, {"half-open link", 5}, {"torn link", 5}, {"deaf link", 4},
	}
	if has["kafka"] {
		faults = append(faults, weighted{"kill broker", 6}, weighted{"restart broker", 6}, weighted{"freeze broker", 5}, weighted{"move leader", 14})
	}
	if has["pulsar"] {
		faults = append(faults, weighted{"kill pulsar", 3}, weighted{"restart pulsar", 2}, weighted{"freeze pulsar", 5})
	}
	deeds := []weighted{{"kill", 42}, {"mark", 30}, {"zombie", 12}, {"mark-zombie", 6}, {"stop", 8}}
	ms := func(most int) time.Duration { return time.Duration(rng.IntN(most)) * time.Millisecond }
	var steps []step
	for n := 0; n < kills; {
		s := step{fault: pick(rng, faults), deed: pick(rng, deeds), target: 1 + rng.IntN(3), table: rng.IntN(len(tables)), part: rng.IntN(3), wait: ms(2500),
			sleep: ms(3000), both: ms(2500)}
		if rng.IntN(4) == 0 {
			s.wait = ms(400) // in start-up
		}
		switch s.fault {
		case "cut link", "slow link", "half-open link", "torn link", "deaf link":
			s.target = rng.IntN(links)
			s.size = 20 + rng.IntN(400)
			if s.fault == "torn link" {
				s.size = 100 + rng.IntN(60_000)
			}
		}
		if s.deed == "mark" || s.deed == "mark-zombie" {
			for {
				p := points[rng.IntN(len(points))]
				if p.of == "" || has[p.of] {
					s.mark, s.hit = p.name, 1+rng.IntN(p.most)
					break
				}
			}
		}
		if s.kills() {
			n++
		}
		steps = append(steps, s)
	}
	for i := range slices.Backward(steps) { // the long ones late, when there is most to lose
		if pauses > 0 && (steps[i].deed == "zombie" || steps[i].deed == "mark-zombie") {
			steps[i].sleep = 2 * time.Minute
			pauses--
		}
	}
	return steps
}
