package run_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/agenttest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/multichoice"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/prompt"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/react"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/corpustest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// agents are those of the recorded journals.
var agents = agent.NewRegistry(slices.Concat(prompt.Definitions(), []agent.Definition{
	generate.Definition(), multichoice.Definition(), react.Definition(), agenttest.Delegates(), agenttest.Listens(),
})...)

// Every recorded journal folds to the states that it had when it was recorded, event by event, what the agents remember
// included. The journals are recorded by the engine's tests.
func TestRecordedJournalsFoldAsBefore(t *testing.T) {
	t.Parallel()
	corpustest.Check(t, "testdata/journals", corpustest.Fold{
		New: func(journal string) (any, func(*agentv1.Event) error) {
			s := run.New(journal, agents)
			return s, s.Apply
		},
		Skip: []string{
			// The engine's, caches, and what leads back.
			"State.OwnerEpoch", "State.agents", "State.plainSpec", "State.Frame", "Frame.run", "Frame.open", "Conversation.links",
			// The parameters of agents, which follow from the specification.
			"machine.params", "machine.step", "machine.change", "machine.ask", "machine.use", "machine.truncate", "machine.guide", "delegating.tasks",
		},
		Show: func(path string, value any) (any, bool) {
			switch v := value.(type) {
			case *agentv1.Event: // The journal has it.
				return v.GetSeq(), true
			case *limit.Set:
				return v.Bounds(), true
			case *run.Frame:
				listed := strings.HasPrefix(path, "frames.") && strings.Count(path, ".") == 1
				return "agent " + v.Span, !listed
			}
			return nil, false
		},
	})
}

// The open effects of each agent are those of the run that are its own, after every event.
func TestTheEffectsOfAgentsAreThoseOfTheRun(t *testing.T) {
	t.Parallel()
	most := 0
	for name, events := range corpustest.Journals(t, "testdata/journals") {
		s := run.New(events[0].GetJournal(), agents)
		for _, e := range events {
			require.NoError(t, s.Apply(e), name)
			n := 0
			for _, f := range s.Frames() {
				own := slices.DeleteFunc(slices.Clone(s.Open), func(i *run.Intent) bool { return i.Frame != f })
				require.True(t, slices.Equal(own, f.Effects()), "%s: event %d, agent %q", name, e.GetSeq(), f.Span)
				require.Equal(t, len(own) == 0, f.Idle())
				n += len(own)
			}
			require.Len(t, s.Open, n, "%s: event %d", name, e.GetSeq())
			most = max(most, n)
		}
	}
	assert.Greater(t, most, 2)
}
