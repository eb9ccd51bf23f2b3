//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Enabled reports whether this binary was built with failpoints.
const Enabled = true

// orders are the places to end at, with the number of passes that are left. They are read once.
var orders = sync.OnceValue(func() map[string]*atomic.Int64 {
	places, err := parse(os.Getenv("EVALFLEET_FAILPOINT")) //nolint:forbidigo // a test build's own switch, absent from the shipped binary
	if err != nil {
		panic(err)
	}
	return places
})

// parse reads `place[=n],…`.
func parse(text string) (map[string]*atomic.Int64, error) {
	places := map[string]*atomic.Int64{}
	for order := range strings.SplitSeq(text, ",") {
		if order = strings.TrimSpace(order); order == "" {
			continue
		}
		place, count, given := strings.Cut(order, "=")
		n := int64(1)
		if given {
			var err error
			if n, err = strconv.ParseInt(count, 10, 64); err != nil || n < 1 {
				return nil, fmt.Errorf("failpoint: %q: want place or place=n with n from 1", order)
			}
		}
		places[place] = new(atomic.Int64)
		places[place].Store(n)
	}
	return places, nil
}

// Hit reaches a point, and ends the process there if it is ordered to.
func Hit(place string) {
	left, ok := orders()[place]
	if !ok || left.Add(-1) != 0 {
		return
	}
	if once := os.Getenv("EVALFLEET_FAILPOINT_ONCE"); once != "" { //nolint:forbidigo // as above
		f, err := os.OpenFile(once, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return
		}
		_ = f.Close()
	}
	fmt.Fprintln(os.Stderr, "failpoint:", place)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
