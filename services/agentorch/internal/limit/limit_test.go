package limit_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
)

func TestMeter(t *testing.T) {
	t.Parallel()
	usage := &modelv1.ModelUsage{InputTokens: 900, OutputTokens: 200, TotalTokens: 1150, InputTokensCacheRead: new(int64(50))}
	for formula, want := range map[string]int64{
		"": 1150, "all": 1150, "input": 950, "output": 200, "(input*0.1)+output": 295, "input - output / 2": 850, "input/0": 4611686018427387904, "0/0": 0,
		"output-input": 0, "2*(1+(input))": 1902, "-output+input": 750, "+output": 200, "--output": 200, "input+2*-output": 550,
	} {
		m, err := limit.NewMeter(formula)
		require.NoError(t, err, formula)
		assert.Equal(t, want, m.Count(usage), formula)
	}
	for _, formula := range []string{"total", "input+", "*input", "(input", "input)", "input output", "1..2", "-", "input-", strings.Repeat("(", 1000), strings.Repeat("-", 1000) + "1"} {
		_, err := limit.NewMeter(formula)
		assert.Error(t, err, formula)
	}
}

func set(t *testing.T, bounds *agentv1.RunLimits) *limit.Set {
	t.Helper()
	s, err := limit.New(bounds)
	require.NoError(t, err)
	return s
}

func TestChecks(t *testing.T) {
	t.Parallel()
	tokens := func(n int64) *modelv1.ModelUsage { return &modelv1.ModelUsage{TotalTokens: n} }
	s := set(t, &agentv1.RunLimits{Messages: new(int32(4)), Tokens: new(int64(30)), Turns: new(int32(2))})

	assert.Nil(t, s.Growth(4))
	assert.Equal(t, limit.Message, s.Growth(5).GetType())
	assert.Nil(t, s.BeforeGenerate(limit.Use{Messages: 3, Usage: tokens(29)}))
	assert.Equal(t, limit.Message, s.BeforeGenerate(limit.Use{Messages: 4}).GetType())
	assert.Equal(t, limit.Token, s.BeforeGenerate(limit.Use{Usage: tokens(30)}).GetType())
	assert.Nil(t, s.AfterGenerate(limit.Use{Usage: tokens(30), Turns: 2}))
	assert.Equal(t, limit.Token, s.AfterGenerate(limit.Use{Usage: tokens(31), Turns: 3}).GetType())
	assert.Equal(t, limit.Turn, s.AfterGenerate(limit.Use{Usage: tokens(30), Turns: 3}).GetType())

	for _, none := range []*limit.Set{nil, set(t, nil), set(t, &agentv1.RunLimits{})} {
		big := limit.Use{Messages: 1 << 30, Usage: tokens(1 << 60), Turns: 1 << 30}
		assert.Nil(t, none.Growth(1<<30))
		assert.Nil(t, none.BeforeGenerate(big))
		assert.Nil(t, none.AfterGenerate(big))
		hit, left := none.TimedOut(time.Hour)
		assert.Nil(t, hit)
		assert.Negative(t, left)
	}
}

func TestClocks(t *testing.T) {
	t.Parallel()
	s := set(t, &agentv1.RunLimits{Time: durationpb.New(time.Minute), WorkingTime: durationpb.New(time.Second)})
	hit, left := s.TimedOut(59 * time.Second)
	assert.Nil(t, hit)
	assert.Equal(t, time.Second, left)
	hit, _ = s.TimedOut(time.Minute)
	assert.Equal(t, limit.Time, hit.GetType())
	assert.InDelta(t, 60.0, hit.GetLimit(), 0)
	hit, _ = s.Overworked(2 * time.Second)
	assert.Equal(t, limit.Working, hit.GetType())

	zero := set(t, &agentv1.RunLimits{Time: durationpb.New(0)})
	hit, _ = zero.TimedOut(0)
	assert.NotNil(t, hit, "zero is a bound")
}

func TestABoundThatIsNoneIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bounds *agentv1.RunLimits
		field  string
	}{
		{&agentv1.RunLimits{Tokens: new(int64(-1))}, "tokens"},
		{&agentv1.RunLimits{Messages: new(int32(-1))}, "messages"},
		{&agentv1.RunLimits{Turns: new(int32(-1))}, "turns"},
		{&agentv1.RunLimits{Cost: new(-0.1)}, "cost"},
		{&agentv1.RunLimits{Cost: new(math.NaN())}, "cost"},
		{&agentv1.RunLimits{Cost: new(math.Inf(1))}, "cost"},
		{&agentv1.RunLimits{Time: durationpb.New(-1)}, "time"},
		{&agentv1.RunLimits{WorkingTime: durationpb.New(-time.Second)}, "working_time"},
		{&agentv1.RunLimits{TokenFormula: "words"}, "token_formula"},
		{&agentv1.RunLimits{Turns: new(int32(-1)), Tokens: new(int64(-1))}, "tokens"},
	} {
		_, err := limit.New(c.bounds)
		e, ok := rpcerr.As(rpcerr.In("spec.limits", err))
		require.True(t, ok, "%v", c.bounds)
		require.Len(t, e.Fields, 1)
		assert.Equal(t, "spec.limits."+c.field, e.Fields[0].Path)
	}
}

// A bound that is named and not set is lifted; one that is not named stays.
func TestRetune(t *testing.T) {
	t.Parallel()
	base := &agentv1.RunLimits{Messages: new(int32(1)), Tokens: new(int64(2)), Cost: new(1.0), TokenFormula: "input"}
	now := &agentv1.RunLimits{Tokens: new(int64(0)), Turns: new(int32(3)), Messages: new(int32(9))}
	got := limit.Retune(base, now, []string{"tokens", "turns", "cost", "token_formula"})
	assert.Equal(t, int32(1), got.GetMessages())
	assert.Equal(t, new(int64(0)), got.Tokens)
	assert.Equal(t, int32(3), got.GetTurns())
	assert.Nil(t, got.Cost)
	assert.Empty(t, got.GetTokenFormula())
	assert.InDelta(t, 1.0, base.GetCost(), 0, "the base stays as it is")
	assert.Equal(t, int32(9), limit.Retune(nil, now, limit.Settable()).GetMessages())
	assert.Nil(t, limit.Retune(base, nil, limit.Settable()).Messages)
}
