package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// fuse is a store that dies at an append, as the process would: just before it is durable, or just after. Nothing is
// written from then on.
type fuse struct {
	journal.Store
	after bool

	mu    sync.Mutex
	left  int
	dead  bool
	blown chan struct{}
}

var errDead = errors.New("the process is dead")

func (f *fuse) Append(ctx context.Context, a journal.Append) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return errDead
	}
	if f.left--; f.left > 0 {
		return f.Store.Append(ctx, a)
	}
	f.dead = true
	defer close(f.blown)
	if f.after {
		if err := f.Store.Append(ctx, a); err != nil {
			return err
		}
	}
	return errDead
}

// wholeLife is a run that does everything: two sandboxes, a step without a model, two tools at once, one after the
// other, a wrong and a right submission, and two scorers.
func wholeLife(f *fleet) *agentv1.RunSpec {
	f.Models.Answer = servicetest.ByTurn(
		servicetest.Says("Two at once.", call("c1", "add", `{"x": 1}`), call("c2", "add", `{"x": 2}`), call("c3", "note", `{}`)),
		servicetest.Says("Nonsense.", call("c4", "nosuch", `{}`)),
		servicetest.Says("First try.", call("c5", "submit", `{"answer": "41"}`)),
		servicetest.Says("Second try.", call("c6", "submit", `{"answer": "42"}`)),
	)
	worked := func(text string) (*toolv1.ToolResult, error) {
		r := servicetest.Text(text)
		r.Timing = &effectv1.Timing{Working: durationpb.New(1e9)}
		return r, nil
	}
	f.Tools.Tools["add"] = servicetest.Tool{Parallel: true, Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
		return worked(fmt.Sprint(c.Arguments["x"]))
	}}
	f.Tools.Tools["note"] = servicetest.Tool{StoreKeys: []string{"n*"}, Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
		r, err := worked("was " + c.Store["note"])
		r.StoreChanges = []*toolv1.StoreChange{{Key: "note", ValueJson: new(`"new"`)}}
		return r, err
	}}
	f.Sandboxes.Run = func(_ context.Context, r *sandboxv1.ExecRequest) (*sandboxv1.ExecResult, error) {
		if strings.Contains(string(r.GetSpec().GetStdin()), "42") {
			return &sandboxv1.ExecResult{Stdout: []byte("fine\n")}, nil
		}
		return &sandboxv1.ExecResult{ExitCode: new(int32(1))}, nil
	}
	s := spec(step("system_message", `{"template": "Be good."}`), step("react", `{"attempts": 2}`, "add", "note"))
	s.Store = map[string]string{"note": `"old"`, "other": "1"}
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}, "victim": {}}
	s.Scorers = []*agentv1.ScorerRef{{Name: "exec", ParamsJson: `{"program": "{completion}"}`}, {Name: "includes"}}
	s.Target = &agentv1.Target{Values: []string{"42"}}
	return s
}

// ending is what must be the same however often the process died.
type ending struct {
	Phase    agentv1.RunState
	Messages []string
	Output   string
	Scores   []string
	Store    map[string]string
	Tokens   int64
	Turns    int
	Working  string
	Steps    int
	Models   int
	Tools    int
	Execs    int
	Boxes    int
	Agents   int // that others began
}

func (f *fleet) ending(s *run.State) ending {
	e := ending{
		Phase: s.Phase, Messages: texts(s.Messages()), Output: s.Output().GetCompletion(), Store: s.Store(), Tokens: s.Total.GetTotalTokens(), Turns: s.Turns,
		Working: s.Working.String(), Steps: s.Step, Models: f.Models.Total(), Tools: f.Tools.Total(), Execs: f.Sandboxes.Total(), Boxes: f.Sandboxes.Made(),
	}
	for event, err := range f.Events(s.Name) {
		require.NoError(f.T, err)
		if event.GetAgentBegan() != nil {
			e.Agents++
		}
	}
	for _, score := range s.FinalScores() {
		e.Scores = append(e.Scores, score.GetName()+"="+score.GetScore().GetValue().GetText())
	}
	return e
}

func TestWholeLife(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	got := f.ending(f.Finish(f.Create(wholeLife(f)).Name))
	assert.Equal(t, ending{
		Phase: agentv1.RunState_RUN_STATE_SUCCEEDED, Output: "Second try.\n\n42",
		Messages: []string{
			got.Messages[0], "S:Be good.", "U:Start.", "A:Two at once.", "T:1", "T:2", `T:was "old"`, "A:Nonsense.", "T:!parsing",
			"A:First try.\n\n41", got.Messages[10], "A:Second try.\n\n42",
		},
		Scores: []string{"exec=C", "includes=C"}, Store: map[string]string{"note": `"new"`, "other": "1"},
		Tokens: 60, Turns: 4, Working: "2s", Steps: 1, Models: 4, Tools: 3, Execs: 4, Boxes: 2,
	}, got)
	assert.Empty(t, f.Sandboxes.Alive())
}

// TestDeathAtEveryAppend ends the engine at each append of a run, just before it is durable and just after, and
// continues with another engine over the same journal and the same owners: nothing is lost and nothing happens twice.
func TestDeathAtEveryAppend(t *testing.T) {
	t.Parallel()
	calm := newFleet(t).start()
	want := calm.ending(calm.Finish(calm.Create(wholeLife(calm)).Name))
	dieEverywhere(t, want, wholeLife)
}

// dieEverywhere ends the engine at each append of a life, before it is durable and after.
func dieEverywhere(t *testing.T, want ending, life func(*fleet) *agentv1.RunSpec) {
	t.Helper()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint("after=", after), func(t *testing.T) {
			t.Parallel()
			for at := 1; ; at++ {
				if !dieOnce(t, at, after, want, life) {
					require.Greater(t, at, 5, "the run has that many appends")
					return
				}
			}
		})
	}
}

// dieOnce reports whether there was such an append.
func dieOnce(t *testing.T, at int, after bool, want ending, life func(*fleet) *agentv1.RunSpec) bool {
	f := newFleet(t)
	s := life(f)
	f.start() // the run is created by an engine without a fuse, which is not to drive it
	f.End()
	fuse := &fuse{after: after, left: at, blown: make(chan struct{})}
	f.Wrap = func(store journal.Store) journal.Store { fuse.Store = store; return fuse }
	f.start()
	head := f.Create(s)
	over := f.Store.Subscribe(head.Name)
	defer over.Close()
	late := time.After(waittest.Bound)
	for alive := true; alive; {
		select {
		case <-late:
			require.FailNow(t, "neither has the store died nor has the run ended")
		case <-fuse.blown:
			alive = false
		case <-over.C:
			if f.State(head.Name).Finished {
				fuse.mu.Lock()
				blown := fuse.dead
				fuse.mu.Unlock()
				if !blown {
					return false
				}
				alive = false
			}
		}
	}
	f.End()
	f.Wrap = nil
	f.start()
	got := f.Finish(head.Name)
	if !assert.Equal(t, want, f.ending(got), "dead at append %d", at) {
		f.Dump(head.Name)
		t.FailNow()
	}
	f.Models.CheckOnce(t)
	f.Tools.CheckOnce(t)
	f.Sandboxes.CheckOnce(t)
	assert.Empty(t, f.Sandboxes.Alive())
	return true
}
