package transcript

import (
	"cmp"
	"fmt"
	"strings"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// fault is the effect that failed last.
type fault struct {
	reason string
	// lines name the place of the error, outermost first.
	lines []string
}

// begun records the purpose of an intent, in the words of a traceback.
func (b *Builder) begun(intent int64, format string, args ...any) {
	b.effects[intent] = fmt.Sprintf(format, args...)
}

// ended records how an effect ended. Reason is empty unless it failed; attempts are those before the last.
func (b *Builder) ended(intent int64, reason string, attempts ...*modelv1.FailedAttempt) {
	effect := b.effects[intent]
	delete(b.effects, intent)
	if reason == "" {
		return
	}
	b.fault = fault{reason: reason}
	for _, line := range []string{b.stepLine, effect} {
		if line != "" {
			b.fault.lines = append(b.fault.lines, line)
		}
	}
	for _, a := range attempts {
		line := "  after an attempt that failed: " + a.GetError()
		if wait := a.GetWait().AsDuration(); wait > 0 {
			line += fmt.Sprintf(" (waited %s)", wait)
		}
		b.fault.lines = append(b.fault.lines, line)
	}
}

// Traceback names the place where an error of the run arose, as far as the events show it: outermost first, the error
// last. A stack of the platform would mean nothing to a reader, and this text does not depend on when it is made.
func (b *Builder) Traceback(e *agentv1.RunError) string {
	var lines []string
	if b.name != "" {
		lines = append(lines, b.name)
	}
	if b.fault.reason != "" && b.fault.reason == e.GetReason() {
		lines = append(lines, b.fault.lines...)
	} else if b.stepLine != "" {
		lines = append(lines, b.stepLine)
	}
	return TracebackText(lines, e)
}

// TracebackText is the text of a traceback, in the form that readers of Python's know.
func TracebackText(lines []string, e *agentv1.RunError) string {
	var t strings.Builder
	t.WriteString("Traceback (most recent call last):\n")
	for _, line := range lines {
		t.WriteString("  " + line + "\n")
	}
	t.WriteString(cmp.Or(e.GetReason(), "ERROR"))
	if e.GetMessage() != "" {
		t.WriteString(": " + e.GetMessage())
	}
	t.WriteByte('\n')
	return t.String()
}

// runLine names a run and its sample.
func runLine(name string, spec *agentv1.RunSpec) string {
	at := spec.GetAttribution()
	if at.GetSample() == "" {
		return name
	}
	return fmt.Sprintf("%s, sample %s, epoch %d", name, at.GetSample(), at.GetEpoch())
}
