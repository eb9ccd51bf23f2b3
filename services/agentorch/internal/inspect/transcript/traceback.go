package transcript

import (
	"cmp"
	"fmt"
	"slices"
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
	place := b.place(intent)
	delete(b.effects, intent)
	if reason == "" {
		return
	}
	b.fault = fault{reason: reason, lines: place}
	for _, a := range attempts {
		line := "  after an attempt that failed: " + a.GetError()
		if wait := a.GetWait().AsDuration(); wait > 0 {
			line += fmt.Sprintf(" (waited %s)", wait)
		}
		b.fault.lines = append(b.fault.lines, line)
	}
}

// place names the run, the step and the purpose of an intent that has not ended, outermost first.
func (b *Builder) place(intent int64) []string { return named(b.name, b.stepLine, b.effects[intent]) }

// named are the lines that are not empty.
func named(lines ...string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

// Traceback names the place where an error of the run arose, as far as the events show it: outermost first, the error
// last. A stack of the platform would mean nothing to a reader, and this text does not depend on when it is made.
func (b *Builder) Traceback(e *agentv1.RunError) string {
	if b.fault.reason != "" && b.fault.reason == e.GetReason() {
		return TracebackText(b.fault.lines, e)
	}
	return TracebackText(named(b.name, b.stepLine), e)
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
