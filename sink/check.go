package sink

// Severities of a Finding.
const (
	SeverityError   = "error"   // the sink cannot work
	SeverityWarning = "warning" // it works, with a risk that the text names
	SeverityInfo    = "info"
)

// Finding is one result of looking at a broker before a sink runs, for
// `binlogmq check`.
type Finding struct {
	Severity string // SeverityError, SeverityWarning or SeverityInfo
	What     string // one sentence: what was found
	Where    string // cluster, broker or topic
	Remedy   string // the exact command or setting that mends it; "" if there is nothing to do
}
