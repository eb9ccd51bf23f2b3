package progress

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/evalfleet/evalfleet/services/allinone/internal/printable"
)

// frame is the least time between two drawings: many samples may end at once.
const frame = 100 * time.Millisecond

const (
	// openLines bounds the lines about open effects, and sampleLines those about samples at work.
	openLines, sampleLines = 3, 8
	// otherLines is what a view draws beside samples: three lines of its own, that of samples that are left out, and
	// where the cursor is.
	otherLines = 5
)

// Live draws over itself in a terminal.
type Live struct {
	out   io.Writer
	size  func() (columns, rows int)
	color bool
	drawn int       // lines on the screen that are ours
	last  time.Time // when they were drawn
	due   *State    // what came since
}

// NewLive returns a view on a terminal. size returns its current columns and rows, because people resize windows.
// Without color it only moves the cursor.
func NewLive(out io.Writer, size func() (columns, rows int), color bool) *Live {
	return &Live{out: out, size: size, color: color}
}

// dim makes a text fainter than others.
func (l *Live) dim(text string) string {
	if !l.color {
		return text
	}
	return "\x1b[2m" + text + "\x1b[0m"
}

// Show draws the state over what was drawn before, now or with a later one.
func (l *Live) Show(s *State) {
	l.due = s
	if time.Since(l.last) >= frame {
		l.draw()
	}
}

// Close draws the last state and leaves it where it is.
func (l *Live) Close() {
	l.draw()
	l.drawn = 0
}

func (l *Live) draw() {
	if l.due == nil {
		return
	}
	columns, rows := l.size()
	width := max(20, columns)
	lines := []string{
		l.bar(l.due, min(40, width-10)),
		l.dim(text.Snip(printable.Line(l.due.counts()), width-1, "…")),
		l.dim(text.Snip(printable.Line(l.due.costs()), width-1, "…")),
	}
	below := l.due.samples(max(0, min(sampleLines, rows-otherLines)))
	if len(l.due.running) == 0 {
		below = l.due.open(openLines)
	}
	for _, line := range below {
		lines = append(lines, l.dim(text.Snip(printable.Line(line), width-1, "…")))
	}
	var b strings.Builder
	if l.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", l.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r\x1b[2K" + line + "\n")
	}
	if len(lines) < l.drawn {
		b.WriteString("\x1b[J")
	}
	l.drawn, l.due, l.last = len(lines), nil, time.Now()
	_, _ = io.WriteString(l.out, b.String()) // One write, so that nothing flickers. Nothing can be done when the terminal is gone.
}

// bar draws the part that is done: without errors, then with them.
func (l *Live) bar(s *State, width int) string {
	p := s.eval.GetProgress()
	total := max(1, p.GetTotal())
	all := int(Done(p)) * width / int(total)
	bad := min(all, int(p.GetFailed()+p.GetCancelled())*width/int(total))
	green, red, plain := "\x1b[32m", "\x1b[31m", "\x1b[0m"
	if !l.color {
		green, red, plain = "", "", ""
	}
	return fmt.Sprintf("%s%s%s%s%s%s %3d %%",
		green, strings.Repeat("━", all-bad), red, strings.Repeat("━", bad), plain, strings.Repeat("─", width-all), int(Done(p))*100/int(total))
}
