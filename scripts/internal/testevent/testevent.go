// Package testevent reads the stream that `go test -json` writes.
package testevent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// Event is one line of the stream; see `go doc test2json`.
type Event struct {
	// Action is start, run, output, pass, fail, skip, build-output, build-fail and some more.
	Action string
	// Package is the import path. Build events have ImportPath in its stead.
	Package    string
	ImportPath string
	// Test is empty for events of the package as a whole.
	Test   string
	Output string
	// Elapsed is in seconds.
	Elapsed float64
}

// Read yields the events of r in order. It ends with r, or after the first line that is not an event,
// which it yields as an error.
func Read(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadBytes('\n')
			if len(line) > 0 {
				var e Event
				if err := json.Unmarshal(line, &e); err != nil {
					yield(Event{}, fmt.Errorf("%w: %q", err, line))
					return
				}
				if !yield(e, nil) {
					return
				}
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(Event{}, err)
				return
			}
		}
	}
}
