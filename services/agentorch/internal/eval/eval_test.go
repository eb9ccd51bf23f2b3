package eval_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/exec"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bodies keeps blobs in memory.
type bodies struct {
	mu  sync.Mutex
	all map[string][]byte
	// lost makes every Open fail.
	lost atomic.Bool
}

func (b *bodies) Put(_ context.Context, project string, r io.Reader, mediaType string) (*contentv1.BlobRef, error) {
	content, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[project+"/"+hash] = content
	return &contentv1.BlobRef{Hash: hash, Size: int64(len(content)), MediaType: mediaType}, nil
}

func (b *bodies) Open(_ context.Context, project, hash string) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	content, ok := b.all[project+"/"+hash]
	if !ok || b.lost.Load() {
		return nil, rpcerr.ResourceNotFound("blob " + hash)
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// runs makes runs whose end the test decides: verdict is asked once for each, and an unset state leaves the run at
// work.
type runs struct {
	journals journal.Store
	verdict  func(sample string, epoch, attempt int) *agentv1.Run
	// unfit is what Check finds; nil finds nothing.
	unfit error
	// refuse and lacks are why a sample can have no run, and what CheckSample finds; nil finds nothing.
	refuse, lacks func(sample string) error
	// making, unless nil, is called before each run is made, and notMade with the error of the store.
	making  func(eval string)
	notMade func(err error)
	// reading, unless nil, returns the error of reading a run.
	reading func(run string) error
	// tooLate makes runs fail before the cancellation reaches them.
	tooLate bool
	// away is a run whose owner takes no command; cancels counts the runs of each cancel.
	away string
	// cancelling, unless nil, is received from by each cancel before it does anything.
	cancelling chan struct{}
	// stuck is a run that cannot be driven.
	stuck   string
	cancels []int

	mu      sync.Mutex
	byKey   map[string]string
	byName  map[string]*agentv1.Run
	tries   map[string]int
	active  int
	busiest int
	checked []string // models, and samples' sandboxes
}

func (r *runs) Pin(context.Context, string, *agentv1.EvalSpec) error { return nil }

func (r *runs) Validate(_ context.Context, _ string, spec *agentv1.RunSpec) ([]*agentv1.EvalWarning, error) {
	model := spec.GetModel().GetModel()
	r.mu.Lock()
	r.checked = append(r.checked, model)
	r.mu.Unlock()
	if spec.GetConfig() == nil || r.unfit != nil {
		return nil, r.unfit
	}
	return []*agentv1.EvalWarning{{Message: "temperature is not sent to " + model, Model: model, UnsentOptions: []string{"temperature"}}}, nil
}

func (r *runs) CheckSandboxes(_ context.Context, _ string, spec *agentv1.RunSpec) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked = append(r.checked, "sandboxes of sample "+spec.GetAttribution().GetSample())
	return nil
}

func (r *runs) CheckSample(_ string, spec *agentv1.RunSpec) error {
	if r.lacks == nil {
		return nil
	}
	return r.lacks(spec.GetAttribution().GetSample())
}

func (r *runs) CreateSample(ctx context.Context, project string, spec *agentv1.RunSpec, key string, under journal.Head) (string, error) {
	if r.making != nil {
		r.making(spec.GetAttribution().GetEval())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if name, ok := r.byKey[key]; ok {
		return name, nil
	}
	name := fmt.Sprintf("projects/%s/runs/r%d", project, len(r.byName)+1)
	at := spec.GetAttribution()
	if r.refuse != nil {
		if err := r.refuse(at.GetSample()); err != nil {
			return "", err
		}
	}
	slot := fmt.Sprintf("%s/%d", at.GetSample(), at.GetEpoch())
	r.tries[slot]++
	run := r.verdict(at.GetSample(), int(at.GetEpoch()), r.tries[slot])
	run.Name, run.StartTime = name, timestamppb.Now()
	run.Spec = &agentv1.RunSpec{Model: spec.GetModel(), Attribution: at}
	row := journal.Row{Kind: journal.KindRun, State: int32(agentv1.RunState_RUN_STATE_RUNNING), Parent: at.GetEval()}
	head, _, err := r.journals.Create(ctx, journal.Creation{Name: name, Owner: "test", Request: project + "/CreateRun/" + key, Row: row, Under: under, Entries: []journal.Entry{{Event: &agentv1.Event{
		Seq: 1, Kind: &agentv1.Event_Info{Info: &agentv1.Info{Code: "made"}},
	}}}})
	if err != nil {
		if r.notMade != nil {
			r.notMade(err)
		}
		return "", err
	}
	r.byKey[key], r.byName[name] = name, run
	r.active++
	r.busiest = max(r.busiest, r.active)
	if run.GetState() != agentv1.RunState_RUN_STATE_UNSPECIFIED {
		return name, r.end(ctx, head, run)
	}
	return name, nil
}

// end journals that a run has ended.
func (r *runs) end(ctx context.Context, head journal.Head, run *agentv1.Run) error {
	run.EndTime = timestamppb.Now()
	r.active--
	bare := proto.CloneOf(run)
	for _, named := range bare.GetScores() {
		named.Score = &agentv1.Score{Value: named.GetScore().GetValue()} // Lists have no content.
	}
	view, err := proto.Marshal(bare)
	if err != nil {
		return err
	}
	row := journal.Row{Kind: journal.KindRun, State: int32(run.GetState()), Parent: parentOf(ctx, r.journals, head), Done: true, View: view}
	return r.journals.Append(ctx, journal.Append{Head: head, Row: &row, Tell: []journal.Letter{journal.Ended(row.Parent, head.Ref)}, Entries: []journal.Entry{{Event: &agentv1.Event{
		Seq: head.Seq + 1, Kind: &agentv1.Event_RunFinished{RunFinished: &agentv1.RunFinished{State: run.GetState()}},
	}}}})
}

// parentOf finds the eval of a run in the rows.
func parentOf(ctx context.Context, j journal.Store, head journal.Head) string {
	rows, _ := j.List(ctx, journal.Query{Kind: journal.KindRun, Limit: 1000})
	for _, row := range rows {
		if row.Name == head.Name {
			return row.Parent
		}
	}
	return ""
}

func (r *runs) CancelAll(ctx context.Context, names []string, _, _ string) error {
	if r.cancelling != nil {
		select {
		case <-r.cancelling:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancels = append(r.cancels, len(names))
	for _, name := range names {
		run := r.byName[name]
		if run.GetState() != agentv1.RunState_RUN_STATE_UNSPECIFIED || r.away == name {
			continue
		}
		head, err := r.journals.Open(ctx, name)
		if err != nil {
			return err
		}
		run.State = agentv1.RunState_RUN_STATE_CANCELLED
		if r.tooLate {
			run.State, run.Error = agentv1.RunState_RUN_STATE_FAILED, failed().GetError()
		}
		if err := r.end(ctx, head, run); err != nil {
			return err
		}
	}
	return nil
}

func (r *runs) Stuck(run string) bool { return r.stuck == run }

func (r *runs) View(_ context.Context, name string, _ bool) (*agentv1.Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reading != nil {
		if err := r.reading(name); err != nil {
			return nil, err
		}
	}
	return r.byName[name], nil
}

// scored is a run that ended well with a grade.
func scored(grade string) *agentv1.Run {
	return &agentv1.Run{
		State:  agentv1.RunState_RUN_STATE_SUCCEEDED,
		Scores: []*agentv1.NamedScore{{Name: "match", Score: &agentv1.Score{Value: &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Text{Text: grade}}}}},
		Usage:  map[string]*modelv1.ModelUsage{"mockllm/model": {TotalTokens: 10}},
	}
}

func failed() *agentv1.Run {
	return &agentv1.Run{State: agentv1.RunState_RUN_STATE_FAILED, Error: &agentv1.RunError{Reason: "INTERNAL", Message: "broken"}}
}

func working() *agentv1.Run { return &agentv1.Run{} }

// bench is an engine over a real store.
type bench struct {
	journals journal.Store
	runs     *runs
	blobs    *bodies
	engine   *eval.Engine
	// wrap changes the store that an engine gets, and hold is what it asks before a sample begins.
	wrap func(journal.Store) journal.Store
	hold func() *agentv1.RunWait
	// patience is how long a cancel waits for the end.
	patience time.Duration
	// logger is that of engines; nil discards.
	logger *slog.Logger
	// judges are those of engines; nil are the platform's.
	judges *eval.Judges
	// replica is the name of engines; empty is test.
	replica string
	// restore gives back what a test took.
	restore func()
}

func start(t *testing.T, verdict func(sample string, epoch, attempt int) *agentv1.Run) *bench {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "e.db"), sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store, err := journalsqlite.Open(t.Context(), db, nil)
	require.NoError(t, err)
	b := &bench{journals: store, blobs: &bodies{all: map[string][]byte{}}}
	b.runs = &runs{journals: store, verdict: verdict, byKey: map[string]string{}, byName: map[string]*agentv1.Run{}, tries: map[string]int{}}
	b.engine = b.newEngine()
	t.Cleanup(func() { b.engine.Close() })
	return b
}

func (b *bench) newEngine() *eval.Engine {
	store := b.journals
	if b.wrap != nil {
		store = b.wrap(store)
	}
	logger := cmp.Or(b.logger, slog.New(slog.DiscardHandler))
	judges := cmp.Or(b.judges, &eval.Judges{Scorers: score.NewRegistry(append(builtin.Definitions(), exec.Definition())...), Metrics: metric.NewRegistry()})
	return eval.New(eval.Config{MaxSamples: 3, CancelPatience: cmp.Or(b.patience, waittest.Bound)}, eval.Deps{
		Hold: b.hold, Journals: store, Blobs: b.blobs, Runs: b.runs, Replica: cmp.Or(b.replica, "test"), Logger: logger, Judges: *judges,
	})
}

func spec(samples int) *agentv1.EvalSpec {
	list := &agentv1.SampleList{}
	for range samples {
		list.Samples = append(list.Samples, &agentv1.Sample{Input: []*modelv1.ChatMessage{chat.User("Q")}, Target: &agentv1.Target{Values: []string{"A"}}})
	}
	return &agentv1.EvalSpec{
		Task: "t", Dataset: &agentv1.Dataset{Name: "d", Source: &agentv1.Dataset_Inline{Inline: list}},
		Models: []*agentv1.ModelRef{{Model: "mockllm/model"}}, Scorers: []*agentv1.ScorerRef{{Name: "match"}},
	}
}

// wait returns the evaluation once ok returns true.
func (b *bench) wait(t *testing.T, name string, ok func(*agentv1.Eval) bool) *eval.State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Bound)
	defer cancel()
	sub := b.journals.Subscribe(name)
	defer sub.Close()
	for {
		s, err := b.engine.State(ctx, name)
		require.NoError(t, err)
		if ok(s.Eval) {
			return s
		}
		select {
		case <-sub.C:
		case <-ctx.Done():
			require.FailNow(t, "the evaluation does not get there", "%v", s.Eval.GetProgress())
		}
	}
}

func (b *bench) ended(t *testing.T, name string) *eval.State {
	t.Helper()
	return b.wait(t, name, func(e *agentv1.Eval) bool {
		return e.GetState() != agentv1.EvalState_EVAL_STATE_RUNNING
	})
}

func metricOf(s *eval.State, key string) float64 {
	for _, m := range s.Eval.GetResults().GetScores()[0].GetMetrics() {
		if m.GetKey() == key {
			return m.GetValue()
		}
	}
	return -1
}

func TestEverySampleOfEveryEpochIsARunAndCounts(t *testing.T) {
	t.Parallel()
	b := start(t, func(sample string, epoch, _ int) *agentv1.Run {
		if sample == "1" || epoch == 2 {
			return scored("C")
		}
		return scored("I")
	})
	s := spec(4)
	s.Epochs = &agentv1.Epochs{Count: new(int32(2))}
	made, err := b.engine.Create(t.Context(), "default", s, "k", false)
	require.NoError(t, err)
	again, err := b.engine.Create(t.Context(), "default", s, "k", false)
	require.NoError(t, err)
	assert.Equal(t, made.Eval.GetName(), again.Eval.GetName(), "one key, one evaluation")

	end := b.ended(t, made.Eval.GetName())
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState())
	assert.EqualValues(t, 8, end.Eval.GetProgress().GetSucceeded())
	assert.InDelta(t, (1+0.5*3)/4.0, metricOf(end, "accuracy"), 1e-9)
	assert.EqualValues(t, 80, end.Eval.GetProgress().GetTotalTokens())
	assert.Len(t, b.runs.byName, 8)
}

func TestNoMoreSamplesAreAtWorkThanAllowed(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	made, err := b.engine.Create(t.Context(), "default", spec(9), "", false)
	require.NoError(t, err)
	b.wait(t, made.Eval.GetName(), func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
	ended, err := b.engine.Cancel(t.Context(), made.Eval.GetName(), "", "enough")
	require.NoError(t, err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, ended.Eval.GetState())
	assert.EqualValues(t, 3, ended.Eval.GetProgress().GetCancelled())
	assert.EqualValues(t, 6, ended.Eval.GetProgress().GetPending())
	assert.Equal(t, 3, b.runs.busiest)
}

// A cancel reaches all runs at once: a run whose owner does not answer does not delay the cancel of the others.
func TestACancelWaitsForNoRunBeforeItCancelsTheOthers(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	b.runs.away = "projects/default/runs/r1"
	made, err := b.engine.Create(t.Context(), "default", spec(3), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
	answered := make(chan error, 1)
	go func() {
		_, err := b.engine.Cancel(t.Context(), name, "", "enough")
		answered <- err
	}()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetCancelled() == 2 })
	b.runs.mu.Lock()
	head, err := b.journals.Open(t.Context(), b.runs.away)
	require.NoError(t, err)
	run := b.runs.byName[b.runs.away]
	run.State = agentv1.RunState_RUN_STATE_CANCELLED
	require.NoError(t, b.runs.end(t.Context(), head, run))
	b.runs.mu.Unlock()
	require.NoError(t, waittest.For(t, answered, "the answer of the cancel"))
	assert.EqualValues(t, 3, b.ended(t, name).Eval.GetProgress().GetCancelled())
	assert.Equal(t, []int{3}, b.runs.cancels, "one cancel for all")
}

// TestACancelIsAcknowledgedWhileARunDoesNotEnd has a run whose effect's owner is unreachable: the cancel is journaled,
// shown, and kept by the next process.
func TestACancelIsAcknowledgedWhileARunDoesNotEnd(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	b.patience = time.Millisecond
	b.again(t, nil)
	b.runs.away = "projects/default/runs/r1"
	made, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
	answer, err := b.engine.Cancel(t.Context(), name, "stop", "enough")
	require.NoError(t, err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_RUNNING, answer.Eval.GetState())
	assert.Equal(t, "cancelling: enough", answer.Eval.GetStateReason())
	shown := b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetStateReason() != "" && e.GetProgress().GetCancelled() == 2 })
	assert.Equal(t, "cancelling: enough", shown.Eval.GetStateReason())
	_, err = b.engine.Cancel(t.Context(), name, "stop", "enough")
	require.NoError(t, err, "the same cancel")
	_, err = b.engine.Resume(t.Context(), name)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_JOURNAL_FENCED), "%v", err)

	head, err := b.journals.Open(t.Context(), name)
	require.NoError(t, err)
	b.again(t, nil)
	b.engine.Adopt(head)
	assert.Equal(t, "cancelling: enough", b.wait(t, name, func(*agentv1.Eval) bool { return true }).Eval.GetStateReason())
	head, err = b.journals.Open(t.Context(), b.runs.away)
	require.NoError(t, err)
	b.runs.mu.Lock()
	run := b.runs.byName[b.runs.away]
	run.State = agentv1.RunState_RUN_STATE_CANCELLED
	require.NoError(t, b.runs.end(t.Context(), head, run))
	b.runs.mu.Unlock()
	end := b.ended(t, name)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, end.Eval.GetState())
	assert.Equal(t, "enough", end.Eval.GetStateReason())
	assert.EqualValues(t, 2, end.Eval.GetProgress().GetPending(), "no sample began after the cancel")
}

// appends counts the appends of evaluations.
type appends struct {
	journal.Store
	count atomic.Int64
}

func (a *appends) Append(ctx context.Context, next journal.Append) error {
	if strings.Contains(next.Head.Name, "/evals/") {
		a.count.Add(1)
	}
	return a.Store.Append(ctx, next)
}

// However many samples are active, and however long it takes to reach them, a cancel is acknowledged with one append.
func TestACancelIsAcknowledgedBeforeAnyRunHasIt(t *testing.T) {
	t.Parallel()
	const samples = 200
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	b.patience = time.Millisecond
	counted := &appends{}
	b.again(t, func(s journal.Store) journal.Store { counted.Store = s; return counted })
	b.runs.cancelling = make(chan struct{})
	many := spec(samples)
	many.MaxSamples = new(int32(samples))
	made, err := b.engine.Create(t.Context(), "default", many, "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == samples })
	before := counted.count.Load()
	answer, err := b.engine.Cancel(waittest.Context(t), name, "", "enough")
	require.NoError(t, err)
	assert.Equal(t, "cancelling: enough", answer.Eval.GetStateReason())
	assert.EqualValues(t, samples, answer.Eval.GetProgress().GetRunning(), "no run has the cancel yet")
	assert.EqualValues(t, 1, counted.count.Load()-before)
	close(b.runs.cancelling)
	assert.EqualValues(t, samples, b.ended(t, name).Eval.GetProgress().GetCancelled())
}

// The first cause ends an evaluation, errors or a cancel, even if another process takes it over in between.
func TestWhatCameFirstEndsAnEvaluation(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]agentv1.EvalState{
		"errors, then a cancel": agentv1.EvalState_EVAL_STATE_FAILED,
		"a cancel, then errors": agentv1.EvalState_EVAL_STATE_CANCELLED,
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", says, restart), func(t *testing.T) {
				t.Parallel()
				failsFirst := want == agentv1.EvalState_EVAL_STATE_FAILED
				b := start(t, func(sample string, _, _ int) *agentv1.Run {
					if sample == "2" && failsFirst {
						return failed()
					}
					return working()
				})
				b.patience = time.Millisecond
				b.again(t, nil)
				b.runs.away, b.runs.tooLate = "projects/default/runs/r1", true
				made, err := b.engine.Create(t.Context(), "default", spec(2), "", false)
				require.NoError(t, err)
				name := made.Eval.GetName()
				b.wait(t, name, func(e *agentv1.Eval) bool {
					return failsFirst && e.GetProgress().GetFailed() == 1 || e.GetProgress().GetRunning() == 2
				})
				_, err = b.engine.Cancel(waittest.Context(t), name, "", "enough")
				require.NoError(t, err)
				b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetFailed() == 1 })
				if restart {
					head, err := b.journals.Open(t.Context(), name)
					require.NoError(t, err)
					b.again(t, nil)
					b.engine.Adopt(head)
				}
				head, err := b.journals.Open(t.Context(), b.runs.away)
				require.NoError(t, err)
				b.runs.mu.Lock()
				run := b.runs.byName[b.runs.away]
				run.State = agentv1.RunState_RUN_STATE_CANCELLED
				require.NoError(t, b.runs.end(t.Context(), head, run))
				b.runs.mu.Unlock()
				assert.Equal(t, want, b.ended(t, name).Eval.GetState())
			})
		}
	}
}

func TestAResumedEvaluationDoesOnlyWhatIsNotDone(t *testing.T) {
	t.Parallel()
	hang := true
	var mu sync.Mutex
	b := start(t, func(sample string, _, _ int) *agentv1.Run {
		mu.Lock()
		defer mu.Unlock()
		if hang && sample != "1" {
			return working()
		}
		return scored("C")
	})
	made, err := b.engine.Create(t.Context(), "default", spec(3), "", false)
	require.NoError(t, err)
	b.wait(t, made.Eval.GetName(), func(e *agentv1.Eval) bool {
		return e.GetProgress().GetSucceeded() == 1 && e.GetProgress().GetRunning() == 2
	})
	_, err = b.engine.Cancel(t.Context(), made.Eval.GetName(), "", "")
	require.NoError(t, err)

	mu.Lock()
	hang = false
	mu.Unlock()
	_, err = b.engine.Resume(t.Context(), made.Eval.GetName())
	require.NoError(t, err)
	end := b.ended(t, made.Eval.GetName())
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState())
	assert.Equal(t, map[string]int{"1/1": 1, "2/1": 2, "3/1": 2}, b.runs.tries)
	assert.InDelta(t, 1, metricOf(end, "accuracy"), 1e-9)
}

// lingering holds the driver of an evaluation after it has journaled the end.
type lingering struct {
	journal.Store
	ended, leave chan struct{}
	once         sync.Once
}

func (l *lingering) Append(ctx context.Context, next journal.Append) error {
	if err := l.Store.Append(ctx, next); err != nil {
		return err
	}
	if next.Row != nil && next.Row.Done {
		l.once.Do(func() {
			close(l.ended)
			<-l.leave
		})
	}
	return nil
}

// A driver that has journaled the end may still be there when its evaluation is resumed.
func TestAnEvaluationIsResumedBesideADriverThatEnds(t *testing.T) {
	t.Parallel()
	var resumed atomic.Bool
	b := start(t, func(string, int, int) *agentv1.Run {
		if resumed.Load() {
			return scored("C")
		}
		return failed()
	})
	store := &lingering{ended: make(chan struct{}), leave: make(chan struct{})}
	b.wrap = func(inner journal.Store) journal.Store {
		store.Store = inner
		return store
	}
	b.engine.Close()
	b.engine = b.newEngine()
	made, err := b.engine.Create(t.Context(), "default", spec(1), "", false)
	require.NoError(t, err)
	waittest.For(t, store.ended, "the end of the evaluation")

	resumed.Store(true)
	_, err = b.engine.Resume(t.Context(), made.Eval.GetName())
	require.NoError(t, err)
	close(store.leave)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, b.ended(t, made.Eval.GetName()).Eval.GetState())
}

// An evaluation whose rule lets samples fail succeeds with them, and to resume runs those again; then nothing is left
// to resume.
func TestToResumeRunsFailedSamplesAgain(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	b := start(t, func(sample string, _, _ int) *agentv1.Run {
		if sample != "1" && !mended.Load() {
			return failed()
		}
		return scored("C")
	})
	s := spec(3)
	s.FailOnError = &agentv1.FailOnError{Rule: &agentv1.FailOnError_Enabled{}}
	made, err := b.engine.Create(t.Context(), "default", s, "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	end := b.ended(t, name)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState())
	assert.EqualValues(t, 2, end.Eval.GetProgress().GetFailed())

	mended.Store(true)
	_, err = b.engine.Resume(t.Context(), name)
	require.NoError(t, err)
	end = b.ended(t, name)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState())
	assert.EqualValues(t, 3, end.Eval.GetProgress().GetSucceeded())
	assert.Equal(t, map[string]int{"1/1": 1, "2/1": 2, "3/1": 2}, b.runs.tries)
	assert.InDelta(t, 1, metricOf(end, "accuracy"), 1e-9)

	_, err = b.engine.Resume(t.Context(), name)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RUN_FINISHED), "%v", err)
	assert.ErrorContains(t, err, "nothing to resume")
}

func TestErrorsEndAnEvaluationByItsRule(t *testing.T) {
	t.Parallel()
	never := &agentv1.FailOnError{Rule: &agentv1.FailOnError_Enabled{}}
	half := &agentv1.FailOnError{Rule: &agentv1.FailOnError_Threshold{Threshold: 0.5}}
	for name, tt := range map[string]struct {
		rule     *agentv1.FailOnError
		goOn     bool
		retries  int32
		failing  int
		want     agentv1.EvalState
		complete int32
	}{
		"the first error by default": {failing: 1, want: agentv1.EvalState_EVAL_STATE_FAILED, complete: -1},
		"never":                      {rule: never, failing: 3, want: agentv1.EvalState_EVAL_STATE_SUCCEEDED, complete: 1},
		"below a part":               {rule: half, failing: 1, want: agentv1.EvalState_EVAL_STATE_SUCCEEDED, complete: 3},
		"at a part":                  {rule: half, failing: 2, want: agentv1.EvalState_EVAL_STATE_FAILED, complete: -1},
		"after all, when going on":   {goOn: true, failing: 1, want: agentv1.EvalState_EVAL_STATE_FAILED, complete: 3},
		"not when a retry succeeds":  {retries: 1, failing: 4, want: agentv1.EvalState_EVAL_STATE_SUCCEEDED, complete: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, func(sample string, _, attempt int) *agentv1.Run {
				if sample <= fmt.Sprint(tt.failing) && (attempt == 1 || tt.retries == 0) {
					return failed()
				}
				return scored("C")
			})
			s := spec(4)
			s.FailOnError, s.ContinueOnFail, s.RetryOnError = tt.rule, tt.goOn, tt.retries
			made, err := b.engine.Create(t.Context(), "default", s, "", false)
			require.NoError(t, err)
			end := b.ended(t, made.Eval.GetName())
			assert.Equal(t, tt.want, end.Eval.GetState())
			if tt.want == agentv1.EvalState_EVAL_STATE_FAILED {
				assert.Contains(t, end.Eval.GetError().GetMessage(), "broken")
			}
			if tt.complete >= 0 {
				assert.Equal(t, tt.complete, end.Eval.GetResults().GetCompletedSamples())
			} else {
				assert.Nil(t, end.Eval.GetResults())
			}
		})
	}
}

func TestTheReasonCountsWhatFailedWhileItStopped(t *testing.T) {
	t.Parallel()
	b := start(t, func(sample string, _, _ int) *agentv1.Run {
		if sample == "3" {
			return failed()
		}
		return working()
	})
	b.runs.tooLate = true
	made, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
	require.NoError(t, err)
	end := b.ended(t, made.Eval.GetName())
	assert.EqualValues(t, 3, end.Eval.GetProgress().GetFailed())
	assert.Equal(t, "3 of 5 samples ended with an error", end.Eval.GetStateReason())
}

func TestASampleThatCanHaveNoRunFailsAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	never := &agentv1.FailOnError{Rule: &agentv1.FailOnError_Enabled{}}
	for name, tt := range map[string]struct {
		fault error
		rule  *agentv1.FailOnError
		want  agentv1.EvalState
	}{
		"an argument":               {rpcerr.InvalidField("spec.steps[0]", "no choices"), never, agentv1.EvalState_EVAL_STATE_SUCCEEDED},
		"something that is not":     {rpcerr.ToolNotFound("bsh", nil), never, agentv1.EvalState_EVAL_STATE_SUCCEEDED},
		"a provider without a key":  {rpcerr.ProviderNotConfigured("p", "default", "no key"), never, agentv1.EvalState_EVAL_STATE_SUCCEEDED},
		"the rule counts it by one": {rpcerr.InvalidRequest("no choices"), nil, agentv1.EvalState_EVAL_STATE_FAILED},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
			b.runs.refuse = func(sample string) error {
				if sample == "2" {
					return tt.fault
				}
				return nil
			}
			s := spec(3)
			s.FailOnError, s.RetryOnError = tt.rule, 1
			made, err := b.engine.Create(t.Context(), "default", s, "", false)
			require.NoError(t, err)
			end := b.ended(t, made.Eval.GetName())
			assert.Equal(t, tt.want, end.Eval.GetState())
			assert.EqualValues(t, 1, end.Eval.GetProgress().GetFailed())
			failed := end.Find("2.1")
			require.NotNil(t, failed.Finished)
			assert.Equal(t, rpcerr.ReasonName(rpcerr.Reason(tt.fault)), failed.Finished.GetError().GetReason())
			assert.Equal(t, tt.fault.Error(), failed.Finished.GetError().GetMessage())
			if tt.want == agentv1.EvalState_EVAL_STATE_FAILED {
				assert.Contains(t, end.Eval.GetError().GetMessage(), "sample 2")
				return
			}
			assert.EqualValues(t, 2, end.Eval.GetProgress().GetSucceeded())
			assert.Zero(t, end.Eval.GetProgress().GetPending())
		})
	}
}

func TestASampleThatCouldHaveNoRunGetsOneWhenTheEvaluationIsResumed(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	b.runs.refuse = func(sample string) error {
		if sample == "2" && !mended.Load() {
			return rpcerr.ProviderNotConfigured("p", "default", "no key")
		}
		return nil
	}
	made, err := b.engine.Create(t.Context(), "default", spec(3), "", false)
	require.NoError(t, err)
	require.Equal(t, agentv1.EvalState_EVAL_STATE_FAILED, b.ended(t, made.Eval.GetName()).Eval.GetState())
	mended.Store(true)
	_, err = b.engine.Resume(t.Context(), made.Eval.GetName())
	require.NoError(t, err)
	end := b.ended(t, made.Eval.GetName())
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState())
	assert.EqualValues(t, 3, end.Eval.GetProgress().GetSucceeded())
}

func TestAPassingFaultOfAServiceIsWaitedOut(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	b.runs.refuse = func(string) error {
		if asked.Add(1) == 1 {
			return rpcerr.ServiceUnavailable("toolexec", 0, "away")
		}
		return nil
	}
	made, err := b.engine.Create(t.Context(), "default", spec(1), "", false)
	require.NoError(t, err)
	assert.EqualValues(t, 1, b.ended(t, made.Eval.GetName()).Eval.GetProgress().GetSucceeded())
}

func TestEverySampleIsLookedAtBeforeAnEvaluationBegins(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	b.runs.lacks = func(sample string) error {
		if sample == "3" {
			return rpcerr.InvalidRequest("sample 3: no choices")
		}
		return nil
	}
	_, err := b.engine.Create(t.Context(), "default", spec(3), "", false)
	assert.ErrorContains(t, err, "sample 3: no choices")
}

func TestASuccessorGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := start(t, func(sample string, _, _ int) *agentv1.Run {
		select {
		case <-release:
			return scored("C")
		default:
		}
		if sample <= "2" {
			return scored("I")
		}
		return working()
	})
	made, err := b.engine.Create(t.Context(), "default", spec(6), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool {
		return e.GetProgress().GetSucceeded() == 2 && e.GetProgress().GetRunning() == 3
	})
	b.engine.Close()
	close(release)
	for _, run := range b.runs.byName { // They end unobserved.
		if run.GetState() == agentv1.RunState_RUN_STATE_UNSPECIFIED {
			head, err := b.journals.Open(t.Context(), run.GetName())
			require.NoError(t, err)
			good := scored("C")
			run.State, run.Scores, run.Usage = good.State, good.Scores, good.Usage
			require.NoError(t, b.runs.end(t.Context(), head, run))
		}
	}
	b.engine = b.newEngine()
	head, err := b.journals.Open(t.Context(), name)
	require.NoError(t, err)
	b.engine.Adopt(head)
	end := b.ended(t, name)
	assert.InDelta(t, 4.0/6, metricOf(end, "accuracy"), 1e-9)
	assert.Len(t, b.runs.byName, 6, "no sample ran twice")
}

// refusing fails to journal the admission of a sample once, as a crash between its run and its admission would.
type refusing struct {
	journal.Store

	once sync.Once
}

func (r *refusing) Append(ctx context.Context, a journal.Append) (err error) {
	if a.Entries[0].Event.GetSampleAdmitted() != nil {
		r.once.Do(func() { err = errors.New("the disk is full") })
	}
	if err != nil {
		return err
	}
	return r.Store.Append(ctx, a)
}

func TestARunThatEndedBeforeItsAdmissionWasJournaledCounts(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	b.engine.Close()
	b.journals = &refusing{Store: b.journals}
	b.engine = b.newEngine()
	made, err := b.engine.Create(t.Context(), "default", spec(2), "", false)
	require.NoError(t, err)
	end := b.ended(t, made.Eval.GetName())
	assert.EqualValues(t, 2, end.Eval.GetProgress().GetSucceeded())
	assert.Len(t, b.runs.byName, 2, "no sample ran twice")
}

// The start adopts what is open, and a call may have made or resumed an evaluation a moment before.
func TestAnAdoptedEvaluationGoesOnUnderItsNewEpoch(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	state, err := b.engine.Create(t.Context(), "default", spec(1), "", false)
	require.NoError(t, err)
	name := state.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 1 })
	_, err = b.journals.Resume(t.Context(), "test")
	require.NoError(t, err)
	adopted, err := b.journals.List(t.Context(), journal.Query{Owner: "test"})
	require.NoError(t, err)
	for _, l := range adopted {
		if l.Name == name {
			b.engine.Adopt(l.Head)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Bound)
	defer cancel()
	_, err = b.engine.Cancel(ctx, name, "", "enough")
	require.NoError(t, err)
}

func TestBadSpecificationsNameTheFault(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	for name, tt := range map[string]struct {
		change func(*agentv1.EvalSpec)
		reason errorsv1.ErrorReason
		says   string
	}{
		"unknown scorer":  {func(s *agentv1.EvalSpec) { s.Scorers[0].Name = "mtch" }, errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND, "match"},
		"unknown reducer": {func(s *agentv1.EvalSpec) { s.Epochs = &agentv1.Epochs{Reducers: []string{"avg"}} }, errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND, "mean"},
		"too few epochs":  {func(s *agentv1.EvalSpec) { s.Epochs = &agentv1.Epochs{Reducers: []string{"pass_at_3"}} }, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "3"},
		"many scorers": {func(s *agentv1.EvalSpec) {
			s.Scorers = slices.Repeat([]*agentv1.ScorerRef{{Name: "match"}}, bound.Scorers+1)
		}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "spec.scorers: 101 are too many"},
		"many metrics": {func(s *agentv1.EvalSpec) {
			s.Metrics = slices.Repeat([]*agentv1.MetricRef{{Name: "mean"}}, bound.Metrics+1)
		}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "spec.metrics: 101 are too many"},
		"many metrics of a scorer": {func(s *agentv1.EvalSpec) {
			s.Scorers[0].Metrics = slices.Repeat([]*agentv1.MetricRef{{Name: "mean"}}, bound.Metrics+1)
		}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "spec.scorers[0].metrics: 101 are too many"},
		"many reducers": {func(s *agentv1.EvalSpec) {
			s.Epochs = &agentv1.Epochs{Reducers: slices.Repeat([]string{"mean"}, bound.Reducers+1)}
		}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "spec.epochs.reducers: 101 are too many"},
		"no sample chosen": {func(s *agentv1.EvalSpec) { s.SampleIds = []string{"z*"} }, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "z*"},
		"a body not there": {func(s *agentv1.EvalSpec) {
			s.Dataset.Source = &agentv1.Dataset_File{File: &agentv1.DatasetFile{Format: agentv1.DatasetFormat_DATASET_FORMAT_JSONL, Blob: &contentv1.BlobRef{Hash: strings.Repeat("0", 64)}}}
		}, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND, "dataset d"},
		"a body of no name": {func(s *agentv1.EvalSpec) {
			s.Dataset.Source = &agentv1.Dataset_File{File: &agentv1.DatasetFile{Format: agentv1.DatasetFormat_DATASET_FORMAT_JSONL, Blob: &contentv1.BlobRef{Hash: "../x"}}}
		}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "spec.dataset.file.blob.hash"},
		"a file without a sandbox": {func(s *agentv1.EvalSpec) {
			s.Dataset.GetInline().Samples[1].Files = map[string]*agentv1.SampleFile{"web:/a": nil}
		}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, `"web"`},
	} {
		s := spec(2)
		tt.change(s)
		_, err := b.engine.Create(t.Context(), "default", s, "", false)
		assert.True(t, rpcerr.Is(err, tt.reason), "%s: %v", name, err)
		assert.ErrorContains(t, err, tt.says, name)
	}
	rows, err := b.journals.List(t.Context(), journal.Query{})
	require.NoError(t, err)
	assert.Empty(t, rows, "nothing was made")
}

// TestEventsOfCallersNameThem: who made an evaluation, changed, cancelled and resumed it is in its journal.
func TestEventsOfCallersNameThem(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	as := func(name string) context.Context { return auth.WithPrincipal(t.Context(), auth.Principal{Name: name}) }
	made, err := b.engine.Create(as("user:maker"), "default", spec(1), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	_, err = b.engine.Update(as("user:changer"), name, eval.Update{Tags: &[]string{"x"}}, "", "")
	require.NoError(t, err)
	_, err = b.engine.Cancel(as("user:canceller"), name, "", "")
	require.NoError(t, err)
	_, err = b.engine.Resume(as("user:resumer"), name)
	require.NoError(t, err)

	head, err := b.journals.Open(t.Context(), name)
	require.NoError(t, err)
	events, err := b.journals.Read(t.Context(), head.Ref, journal.Range{Bare: true})
	require.NoError(t, err)
	actors := map[string]string{}
	for _, e := range events {
		kind := fmt.Sprintf("%T", e.GetKind())
		if resumed := e.GetEvalStateChanged(); resumed != nil {
			kind += " " + resumed.GetReason()
		}
		actors[kind] = e.GetActor()
	}
	assert.Equal(t, "user:maker", actors["*agentv1.Event_EvalCreated"])
	assert.Equal(t, "user:changer", actors["*agentv1.Event_EvalUpdated"])
	assert.Equal(t, "user:canceller", actors["*agentv1.Event_CommandReceived"])
	assert.Equal(t, "user:resumer", actors["*agentv1.Event_EvalStateChanged resumed"])
	assert.Equal(t, "system", actors["*agentv1.Event_SampleAdmitted"])
}
