// Package seconds converts numbers of seconds, as configurations and tools give them.
package seconds

import (
	"math"
	"time"
)

// Duration converts a number of seconds. More than a Duration holds is the longest that deadlines can be made of.
func Duration(n float64) time.Duration {
	return time.Duration(min(n*float64(time.Second), math.MaxInt64/2))
}
