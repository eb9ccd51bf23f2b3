package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/evalfleet/evalfleet/services/allinone/internal/printable"
)

// Lines writes a line now and then: whenever another tenth is done, and when something has changed for a while. While
// nothing changes it writes that, at growing intervals.
type Lines struct {
	out   io.Writer
	last  time.Time     // of the last line
	pause time.Duration // until the next one when nothing changes
	moved time.Time     // when the state last changed
	tenth int
	text  string // of the last line
	seen  string // of the last state
}

// quiet is how long changes within a tenth may go unsaid. Lines that nothing changes come after quiet at first, then
// ever later, up to longest.
const (
	quiet   = 10 * time.Second
	longest = 80 * time.Second
)

// NewLines makes a view on a pipe or file.
func NewLines(out io.Writer) *Lines { return &Lines{out: out, tenth: -1} }

// Show writes a line when there is reason to. It is to be called now and then also when nothing has changed.
func (l *Lines) Show(s *State) {
	p := s.eval.GetProgress()
	tenth := int(Done(p)) * 10 / int(max(1, p.GetTotal()))
	counts := s.counts()
	if seen := fmt.Sprint(counts, p.GetTotalTokens()); seen != l.seen {
		l.seen, l.moved, l.pause = seen, time.Now(), quiet
	}
	since, note := time.Since(l.last), ""
	switch {
	case counts != l.text && (tenth != l.tenth || since >= quiet):
	case counts == l.text && since >= l.pause && Done(p) < p.GetTotal():
		if !l.moved.After(l.last) {
			l.pause, note = min(2*l.pause, longest), " · no change for "+clock(time.Since(l.moved))
		}
	default:
		return
	}
	for _, open := range s.open(1) {
		note += " · " + open
	}
	fmt.Fprintln(l.out, printable.Line(counts+" · "+s.costs()+note))
	l.tenth, l.text, l.last = tenth, counts, time.Now()
}

// Close has nothing left to say.
func (l *Lines) Close() {}
