package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// goesOn is a run whose agent takes so many turns.
func goesOn(turns int32, input ...*modelv1.ChatMessage) *agentv1.RunSpec {
	s := spec(step("react", `{"prompt": null, "on_continue": "Go on."}`))
	turns-- // The limit ends a run with the answer after it.
	s.Input, s.Limits = input, &agentv1.RunLimits{Turns: &turns}
	return s
}

// whole asserts that each call reached the model with all of its conversation.
func whole(t *testing.T, requests []*modelv1.GenerateRequest, input, turns int) {
	t.Helper()
	require.Equal(t, turns, len(requests)) //nolint:testifylint // the requests are large
	for i, r := range requests {
		require.Equal(t, input+2*i, len(r.GetMessages())) //nolint:testifylint // as above
		for j, m := range r.GetMessages()[input:] {
			assert.Equal(t, []string{"said", "Go on."}[j%2], chat.Text(m))
		}
	}
}

func TestACallSendsWhatIsNewOfAConversation(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		forgets int32
		sent    []int
	}{
		"kept":      {0, []int{1, 1, 1, 1}},
		"forgotten": {100, []int{1, 1, 3, 1, 5, 1, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			f.Models.Forgets.Store(tt.forgets)
			f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
				return servicetest.Say("said"), nil
			}
			f.Finish(f.Create(goesOn(4, chat.User("first"))).Name)
			whole(t, f.Models.Requests(), 1, 4)
			assert.Equal(t, tt.sent, f.Models.Sent())
		})
	}
}

// TestAConversationThatIsNoMessageIsSentInParts has an input that is larger than a message between services may be.
func TestAConversationThatIsNoMessageIsSentInParts(t *testing.T) {
	t.Parallel()
	var input []*modelv1.ChatMessage
	for range 5 {
		input = append(input, chat.User(strings.Repeat("x", 1<<20)))
	}
	f := newFleet(t).start()
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		return servicetest.Say("said"), nil
	}
	f.Finish(f.Create(goesOn(2, input...)).Name)
	whole(t, f.Models.Requests(), 5, 2)
	assert.Equal(t, []int{2, 2, 1, 1}, f.Models.Sent())
}

// TestAConversationThatIsForgottenAgainAndAgainIsSentAgain has no turn lost while modelgw has no room for it.
func TestAConversationThatIsForgottenAgainAndAgainIsSentAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Forgets.Store(3)
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		return servicetest.Say("said"), nil
	}
	got := f.Finish(f.Create(goesOn(1, chat.User(strings.Repeat("x", 2<<20)), chat.User(strings.Repeat("y", 2<<20)))).Name)
	assert.Equal(t, 1, got.Turns)
	assert.Nil(t, got.Error)
	whole(t, f.Models.Requests(), 2, 1)
	assert.Equal(t, []int{1, 1, 1, 1, 1, 1, 1, 1}, f.Models.Sent(), "the first part and the call, four times")
}
