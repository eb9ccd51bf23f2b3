package progress

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Live draws over itself in a terminal.
type Live struct {
	out   io.Writer
	width func() int
	drawn int
}

// NewLive makes a view on a terminal. Width tells its columns each time, since people resize windows.
func NewLive(out io.Writer, width func() int) *Live { return &Live{out: out, width: width} }

// Show draws the state over what was drawn before.
func (l *Live) Show(s *State) {
	width := max(20, l.width())
	lines := []string{
		bar(s, min(40, width-10)),
		"\x1b[2m" + text.Snip(s.counts(), width-1, "…") + "\x1b[0m",
		"\x1b[2m" + text.Snip(s.costs(), width-1, "…") + "\x1b[0m",
	}
	var b strings.Builder
	if l.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", l.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r\x1b[2K" + line + "\n")
	}
	l.drawn = len(lines)
	_, _ = io.WriteString(l.out, b.String()) // One write, so that nothing flickers. Nothing can be done when the terminal is gone.
}

// Close leaves the last state where it is.
func (l *Live) Close() { l.drawn = 0 }

// bar draws the part that is done: without errors, then with them.
func bar(s *State, width int) string {
	p := s.eval.GetProgress()
	total := max(1, p.GetTotal())
	all := int(Done(p)) * width / int(total)
	bad := min(all, int(p.GetFailed()+p.GetCancelled())*width/int(total))
	return fmt.Sprintf("\x1b[32m%s\x1b[31m%s\x1b[0m%s %3d %%",
		strings.Repeat("━", all-bad), strings.Repeat("━", bad), strings.Repeat("─", width-all), int(Done(p))*100/int(total))
}
