// Package transcripttest reads whole journals as transcripts, for tests.
package transcripttest

import (
	"fmt"
	"iter"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript"
)

// Of reads a journal from its beginning. What has begun and not ended is pending.
func Of(events iter.Seq2[*agentv1.Event, error]) ([]*transcript.Event, error) {
	b := transcript.NewBuilder()
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		if err := b.Add(e); err != nil {
			return nil, fmt.Errorf("transcript: event %d: %w", e.GetSeq(), err)
		}
	}
	return b.Events(), nil
}
