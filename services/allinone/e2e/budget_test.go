package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// What was spent, and the bounds that an operator set, outlive a server that is stopped and one that is killed.
func TestBudgetsOutliveTheServer(t *testing.T) {
	t.Parallel()
	const project = "projects/default"
	h := newHome(t, &shipped, single)
	c := h.serve()
	bound := func(tokens int64) {
		_, err := modelv1.NewLimitServiceClient(c.conn).UpdateBudget(t.Context(), &modelv1.UpdateBudgetRequest{
			Budget: &modelv1.Budget{Name: project + "/budgets/project", MaxTokens: &tokens}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"max_tokens"}},
		})
		require.NoError(t, err)
	}
	budget := func() []int64 {
		list, err := modelv1.NewLimitServiceClient(c.conn).ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: project})
		require.NoError(t, err)
		require.Len(t, list.GetBudgets(), 1)
		return []int64{list.GetBudgets()[0].GetMaxTokens(), list.GetBudgets()[0].GetSpentTokens()}
	}
	bound(1000)
	_, err := modelv1.NewModelServiceClient(c.conn).Generate(t.Context(), &modelv1.GenerateRequest{
		Parent: project, Model: "mockllm/model", Messages: []*modelv1.ChatMessage{chat.User("How much is left?")},
	})
	require.NoError(t, err)
	spent := budget()[1]
	require.Positive(t, spent)

	h.stop()
	c = h.serve()
	assert.Equal(t, []int64{1000, spent}, budget())
	bound(2000)
	h.kill()
	c = h.serve()
	assert.Equal(t, []int64{2000, spent}, budget())
}
