package main

// mutant is a guard and what the code is without it.
type mutant struct {
	invariant string
	guard     string
	file      string
	old, text string
	tests     string // arguments of go test; one of them must fail
}

var mutants = []mutant{
	{"I1", "a batch is acknowledged when all its chunks are done", "bridge/ledger.go",
		"if !e.sealed || e.left > 0 || e.failed {", "if !e.sealed || e.failed {", "./bridge"},
	{"I1", "a failed chunk fails its batch", "bridge/ledger.go",
		"	if !ok {\n		e.failed = true\n	}\n", "	_ = ok\n", "./bridge"},
	{"I1", "a message that failed fails its slab", "bridge/encode.go",
		"	if err != nil {\n		s.failed.Store(true)\n		s.chunk.session.messageFailed(m, err)\n	}\n", "	_, _ = m, err\n", "./bridge"},
	{"I1", "Kafka: only the codes of success are a confirmation", "sink/kafka/broker.go",
		"	switch {\n	case a.code == codeNoError || a.code == codeDuplicate:\n		l.answered(false)", "	switch {\n	case true:\n		l.answered(false)", "./sink/kafka"},

	{"I2", "the cursor never moves back", "server/core.go",
		"if e.Ordinal <= c.Last() { // I2", "if false && e.Ordinal <= c.Last() {", "./server"},
	{"I2", "an acknowledgement does not pass what was handed out", "store/ring.go",
		"if i < rd.ack || i > rd.get { // I2: forward only, and never beyond what was handed out", "if i < rd.ack {", "./store"},
	{"I2", "a cursor file is written beside the old one and renamed", "meta/file/store.go",
		`tmp := filepath.Join(s.dir, "."+name+".tmp")`, `tmp := path`, "./meta/file"},
	{"I2", "a cursor file is on the disk before it is renamed", "meta/file/store.go",
		"	if err == nil {\n		err = s.sync(f)\n	}\n", "", "./meta/file"},

	{"I3", "an event of unknown type stops the destination", "connector/binlog/machine.go",
		"if r.Flags&FlagIgnorable != 0 || m.opt.Scan {", "if true {", "./connector/binlog"},
	{"I3", "rows events hold the rows that were counted, and nothing more", "event/scan.go",
		"		if s.off != len(e.Raw) {\n", "		if false {\n", "./event"},
	{"I3", "the checksum of an event is verified", "connector/binlog/stream.go",
		"crc32.ChecksumIEEE(data[:len(data)-4]) == le32(data[len(data)-4:])", "crc32.ChecksumIEEE(nil) == 0", "./connector/binlog"},

	{"I3", "Pulsar: what the broker calls a duplicate is looked for in the topic", "sink/pulsar/lane.go",
		"	if l.weighing || l.doubtful(id, duplicate) {\n", "	if false {\n", "-run TestKilledAtARefusal ./sink/pulsar"},

	{"I4", "Kafka: what is sent again goes to its place among the rest", "sink/kafka/lane.go",
		"for i > 0 && l.retry[i-1].first > b.first {", "for false {", "./sink/kafka"},
	{"I4", "Kafka: nothing new while earlier batches wait for their answers", "sink/kafka/lane.go",
		"	if failed {\n		l.draining = true\n", "	if failed {\n", "./sink/kafka"},
	{"I4", "Kafka: one batch alone until the broker has acknowledged one", "sink/kafka/lane.go",
		"l.inflight == 0 || l.proven && l.inflight", "l.inflight == 0 || l.inflight", "./sink/kafka"},
	{"I4", "Kafka sequenced: one batch alone after a lane is synchronised", "sink/kafka/synchronise.go",
		"s.on, l.proven = p, false", "s.on, l.proven = p, true", "./sink/kafka"},

	{"I5", "a replay starts from the state that was saved before the first number was used", "bridge/bridge.go",
		"	if err := b.o.Client.SaveState(ctx, text); err != nil {\n		return fmt.Errorf(\"save epoch", "	if err := error(nil); err != nil {\n		return fmt.Errorf(\"save epoch", "./bridge"},
	{"I5", "a topic's number of partitions is saved before anything is sent there", "bridge/session.go",
		"		if err := s.savePins(intake); err != nil {\n			return s.stuck(intake, ctx, nil, e, err)", "		if err := error(nil); err != nil {\n			return s.stuck(intake, ctx, nil, e, err)", "./bridge"},
	{"I5", "another fingerprint begins a new epoch, or is refused", "bridge/bridge.go",
		"changed := st != nil && st.Fingerprint != b.fingerprint", "changed := false && st != nil && st.Fingerprint != b.fingerprint", "./bridge"},
	{"I5", "a change under other numbers is refused where it may be stored already", "bridge/bridge.go",
		"if changed && st.Fingerprint != MovedFingerprint && !st.Clean", "if false && changed && st.Fingerprint != MovedFingerprint && !st.Clean", "./bridge"},
	{"I5", "a reader that passes a saved cursor arrives at its number", "server/core.go",
		"			if why != \"\" {\n				if err == nil {\n					err = misplaced", "			if why == \"never\" {\n				if err == nil {\n					err = misplaced", "./server"},
	{"I5", "a ring that begins, and a catch-up reader, end at another server", "server/core.go",
		"if err := f.elsewhere(events); err != nil {", "if err := f.elsewhere(events); err != nil && false {", "./server"},
	{"I5", "Kafka: the sequence is the message's number", "sink/kafka/synchronise.go",
		"	if m.Sequence == c.seq && m.SubIndex == c.sub {\n		return nil\n	}\n", "	if true {\n		return nil\n	}\n", "./sink/kafka"},

	{"I6", "a column of the known definition is another one in the log", "connector/schema/schema.go",
		`if why := disagree(c, k, joined); why != "" {`, `if why := disagree(c, k, joined); why == "never" {`, "./connector/schema"},
	{"I6", "the known definition has as many columns as the log", "connector/schema/schema.go",
		"if len(info) != len(t.Columns) {", "if false {", "./connector/schema"},

	{"I7", "what a cursor says is done is not handed out", "server/core.go",
		"	if d.GTIDs.Contains(g) {\n		return math.MaxInt64, nil\n	}\n", "", "./server"},
	{"I3", "progress is taken off the transaction that the cursor names only", "server/core.go",
		"e.Kind == event.Begin && s.cut > s.cutAt && !s.cutOf.IsZero() &&", "false && s.cut > s.cutAt &&", "./server"},
	{"I7", "what was put before a lost link is skipped (ring)", "server/core.go",
		"		case store.LastOrdinal(e) <= last:\n			return true, nil, nil\n", "", "./server"},
	{"I7", "what was put before a lost link is skipped (reader)", "connector/read.go",
		"	r.replay = r.open != nil\n", "	r.replay = false\n", "-tags integration -run TestDumpKilled ./connector"},
	{"I7", "a transaction that is shown again is the same one", "connector/read.go",
		"if t.ServerUUID != o.ServerUUID {", "if false {", "./connector"},
	{"I7", "Kafka sequenced: a lane is synchronised anew after an error", "sink/kafka/lane.go",
		"		if l.seq != nil {\n			l.seq.on = nil\n		}\n	}\n	if l.draining {", "	}\n	if l.draining {", "./sink/kafka"},
	{"I7", "Kafka sequenced: what the log has is not sent again", "sink/kafka/synchronise.go",
		"		if stored { // the queue is empty then\n", "		if false {\n", "./sink/kafka"},
	{"I7", "Kafka sequenced: a sequence that is refused (45) is looked into, not repeated", "sink/kafka/synchronise.go",
		"	case disagrees(a.code) && !l.draining:\n", "	case false:\n", "./sink/kafka"},
	{"I7", "Pulsar: sending begins behind the broker's last sequence id", "sink/pulsar/wire/producer.go",
		"p.queue.slot(p.sent).ID <= p.last {", "p.queue.slot(p.sent).ID < p.last {", "./sink/pulsar/wire"},
	{"I7", "Pulsar: one message alone at the border of what is stored", "sink/pulsar/wire/producer.go",
		"	p.border = p.o.Batching\n", "	p.border = false\n", "./sink/pulsar/wire"},
	{"I7", "Pulsar: what was skipped is done after a receipt of the new session", "sink/pulsar/wire/producer.go",
		"		p.probe = m.ID\n", "		p.probe = -1\n", "./sink/pulsar/wire"},

	{"I8", "the cursor directory is locked", "meta/file/lock_unix.go",
		"unix.LOCK_EX|unix.LOCK_NB", "unix.LOCK_SH|unix.LOCK_NB", "./meta/file"},
	{"I8", "who lost the lease saves nothing", "server/save.go",
		"	if d.fatal != nil {\n		defer d.mu.Unlock()\n		return d.fatal // I8\n	}\n", "", "./server"},
	{"I8", "who lost the lease sends nothing", "bridge/session.go",
		"accepted, err := 0, s.b.o.Owner() // I8", "accepted, err := 0, error(nil)", "./bridge"},
	{"I8", "Kafka sequenced: an older epoch is refused for good", "sink/kafka/synchronise.go",
		"	case a.code == codeInvalidEpoch || a.code == codeFenced:\n", "	case false:\n", "./sink/kafka"},

	{"I9", "the bridge's window is bounded", "bridge/session.go",
		"if batches < s.b.o.WindowBatches && bytes+s.encoded.Load() < s.b.o.WindowBytes {", "if batches >= 0 && bytes >= 0 {", "./bridge"},
	{"I9", "the ring is bounded", "store/ring.go",
		"if (r.next >= lastIndex || end > lastEnd) && r.next > r.low {", "if r.next > lastIndex && end < 0 {", "./store"},
	{"I9", "an event above the limit is refused before it is read", "connector/binlog/stream.go",
		"if s.limit > 0 && size > s.limit {", "if false {", "./connector/binlog"},
}
