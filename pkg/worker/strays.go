package worker

import (
	"time"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Strays counts consecutive frames about calls that a worker does not have. A few are normal: a cancel may cross with a
// result. It is not safe for concurrent use.
type Strays struct{ count int }

// Expect allows n more: results of calls that the worker is to forget may be on their way.
func (s *Strays) Expect(n int) { s.count -= n }

// Known ends the row: a frame was about a call that the worker has.
func (s *Strays) Known() { s.count = min(s.count, 0) }

// Stray counts a frame. It fails with WORKER_REFUSED if there are too many.
func (s *Strays) Stray(worker string) error {
	if s.count++; s.count <= maxStrays {
		return nil
	}
	return rpcerr.WorkerRefused(worker, time.Minute, "%d frames in a row are about calls that this worker does not have", s.count)
}
