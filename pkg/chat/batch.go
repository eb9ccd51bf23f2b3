package chat

import (
	"google.golang.org/protobuf/proto"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// DefaultBatchSize is the number of requests at which a batch is sent, if the configuration sets none.
const DefaultBatchSize = 100

// Batch returns the schedule of batches of a configuration, or nil if calls do not travel in batches. One that is
// merely switched on has the default size; the other defaults are those of who sends batches.
func Batch(c *modelv1.GenerateConfig) *modelv1.BatchSetting {
	b := c.GetBatch()
	if !b.GetEnabled() {
		return nil
	}
	if b.Size == nil && onlySize(b) {
		b = proto.CloneOf(b)
		b.Size = new(int32(DefaultBatchSize))
	}
	return b
}
