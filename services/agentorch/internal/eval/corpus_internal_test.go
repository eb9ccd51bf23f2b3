package eval

import (
	"testing"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/corpustest"
)

// Every recorded journal of an evaluation folds to the states that it had when it was recorded, event by event.
func TestRecordedJournalsFoldAsBefore(t *testing.T) {
	t.Parallel()
	corpustest.Check(t, "testdata/journals", corpustest.Fold{
		New: func(string) (any, func(*agentv1.Event) error) {
			s := &State{}
			return s, func(e *agentv1.Event) error {
				s.Apply(e)
				return nil
			}
		},
		Skip: []string{"State.changing", "State.failures", "State.first"}, // The last two follow from the slots.
		Show: func(path string, value any) (any, bool) {
			e, ok := value.(*agentv1.Eval)
			if !ok || e.GetEtag() == "" {
				return nil, false
			}
			e = proto.CloneOf(e)
			e.Etag = "" // It follows from the rest.
			return e, true
		},
	})
}
