package generate_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/cache"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// step answers one attempt.
type step func(ctx context.Context, r *provider.Request) (*provider.Response, error)

// scripted is a provider whose attempts are answered by steps in order, the last one again and again.
type scripted struct {
	mu    sync.Mutex
	steps []step
	calls int
}

func (s *scripted) Capabilities() provider.Capabilities {
	return provider.Capabilities{Features: &modelv1.Capabilities{Streaming: true}}
}

func (s *scripted) Check(*modelv1.GenerateConfig) error { return nil }

func (s *scripted) Close() error { return nil }

func (s *scripted) Generate(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	s.mu.Lock()
	next := s.steps[min(s.calls, len(s.steps)-1)]
	s.calls++
	s.mu.Unlock()
	return next(ctx, r)
}

func (s *scripted) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// says answers with a text that took 5 tokens.
func says(text string) step {
	return func(context.Context, *provider.Request) (*provider.Response, error) {
		output := chattest.Says("m", text)
		output.Usage = &modelv1.ModelUsage{InputTokens: 3, OutputTokens: 2, TotalTokens: 5}
		return &provider.Response{Output: output}, nil
	}
}

// after answers later.
func after(d time.Duration, next step) step {
	return func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
		select {
		case <-time.After(d):
			return next(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// fails answers with an upstream error.
func fails(status int, retryAfter time.Duration) step {
	return func(context.Context, *provider.Request) (*provider.Response, error) {
		return nil, &provider.Error{Provider: "test", Class: provider.ClassOf(status), Status: status, RetryAfter: retryAfter}
	}
}

// rig is a whole pipeline over a scripted provider.
type rig struct {
	provider  *scripted
	model     *provider.Model
	limiter   *limit.Memory
	budgets   *budget.Ledger
	prices    generate.Prices
	responses *generate.Cache
	stages    generate.Func
	outcomes  sync.Map // of *generate.Outcome by *generate.Call
	random    float64
	probing   bool
}

func newRig(steps ...step) *rig {
	g := &rig{provider: &scripted{steps: steps}, limiter: &limit.Memory{}, budgets: budget.New(nil)}
	g.model = &provider.Model{Kind: provider.Kind{Name: "test"}, Name: "m", Account: "default", Provider: g.provider}
	g.stages = g.pipeline(g.limiter)
	return g
}

// pipeline is all stages with another limiter.
func (g *rig) pipeline(limiter limit.Limiter) generate.Func {
	schedule := retry.Default()
	schedule.Random = func() float64 { return g.random }
	log := slog.New(slog.DiscardHandler)
	g.responses = generate.NewCache(cache.NewMemory(1<<20), log)
	return generate.Chain(
		generate.Attempt(0, generate.NewAnswers(provider.DefaultMaxAnswerBytes, provider.DefaultMaxAnswerBytes)),
		g.responses.Stage,
		generate.Spend(g.budgets, func() generate.Prices { return g.prices }),
		generate.Retry(schedule, log),
		generate.Admit(limiter, generate.MeasurePools(limiter, nil), generate.Admission{Probing: g.probing}),
	)
}

// bound bounds a scope.
func (g *rig) bound(t testing.TB, scope string, b budget.Bounds) {
	t.Helper()
	_, err := g.budgets.Set(t.Context(), scope, b)
	require.NoError(t, err)
}

// generate answers a call and keeps its outcome.
func (g *rig) generate(ctx context.Context, c *generate.Call) (*provider.Response, error) {
	return g.stages(ctx, c, g.outcome(c))
}

// outcome is the outcome of a call.
func (g *rig) outcome(c *generate.Call) *generate.Outcome {
	o, _ := g.outcomes.LoadOrStore(c, &generate.Outcome{})
	return o.(*generate.Outcome)
}

func (g *rig) call(config *modelv1.GenerateConfig) *generate.Call {
	if config == nil {
		config = &modelv1.GenerateConfig{}
	}
	return &generate.Call{
		Model:        g.model,
		Conversation: prepare.Conversation{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: config},
		Origin:       provider.Origin{Project: "p", Attribution: &effectv1.Attribution{Epoch: 1}},
	}
}

func (g *rig) pool(t testing.TB) limit.Pool {
	t.Helper()
	pools, err := g.limiter.Pools(t.Context())
	require.NoError(t, err)
	require.Len(t, pools, 1)
	return pools[0]
}
