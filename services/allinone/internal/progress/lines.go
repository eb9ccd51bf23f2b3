package progress

import (
	"fmt"
	"io"
	"time"
)

// Lines writes a line now and then: whenever another tenth is done, and when something has changed for a while.
type Lines struct {
	out   io.Writer
	last  time.Time
	tenth int
	text  string
}

// quiet is how long changes within a tenth may go unsaid.
const quiet = 10 * time.Second

// NewLines makes a view on a pipe or file.
func NewLines(out io.Writer) *Lines { return &Lines{out: out, tenth: -1} }

// Show writes a line when there is reason to.
func (l *Lines) Show(s *State) {
	p := s.eval.GetProgress()
	tenth := int(Done(p)) * 10 / int(max(1, p.GetTotal()))
	counts := s.counts()
	if counts == l.text || tenth == l.tenth && time.Since(l.last) < quiet {
		return
	}
	l.tenth, l.text, l.last = tenth, counts, time.Now()
	fmt.Fprintln(l.out, counts+" · "+s.costs())
}

// Close has nothing left to say.
func (l *Lines) Close() {}
