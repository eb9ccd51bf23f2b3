package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcserver/grpcservertest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval/live"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evalexport"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/retention"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/server"
)

// patience bounds every wait; nothing here takes long.
const patience = time.Minute

// bodies keeps blobs in memory, under numbers.
type bodies struct {
	mu  sync.Mutex
	all [][]byte
	// byHash has those that were uploaded.
	byHash map[string]string
	// opened counts bodies that were read.
	opened int
}

func (b *bodies) Put(_ context.Context, _ string, r io.Reader, mediaType string) (*contentv1.BlobRef, error) {
	body, err := io.ReadAll(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, body)
	return &contentv1.BlobRef{Hash: strconv.Itoa(len(b.all) - 1), Size: int64(len(body)), MediaType: mediaType}, err
}

func (b *bodies) Open(_ context.Context, _, hash string) (io.ReadCloser, error) {
	i, err := strconv.Atoi(hash)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened++
	if text, ok := b.byHash[hash]; ok {
		return io.NopCloser(strings.NewReader(text)), nil
	}
	if err != nil || i >= len(b.all) {
		return nil, rpcerr.ResourceNotFound("blob " + hash)
	}
	return io.NopCloser(bytes.NewReader(b.all[i])), nil
}

// named is a body under its hash, as clients name it.
func (b *bodies) named(text string) string {
	sum := sha256.Sum256([]byte(text))
	hash := hex.EncodeToString(sum[:])
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byHash == nil {
		b.byHash = map[string]string{}
	}
	b.byHash[hash] = text
	return hash
}

func (b *bodies) Size(_ context.Context, _, hash string) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text, ok := b.byHash[hash]
	if !ok {
		return 0, rpcerr.ResourceNotFound("blob " + hash)
	}
	return int64(len(text)), nil
}

// count is how many bodies were read.
func (b *bodies) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// evalRuns creates runs that end at once with the state of their sample; a run without a state stays active until it is
// cancelled.
type evalRuns struct {
	journals journal.Store

	mu     sync.Mutex
	states map[string]agentv1.RunState
	made   map[string]*agentv1.Run
	waits  map[string][]*agentv1.EvalWait // by evaluation
	parked map[string]*agentv1.RunWait    // by run
	answer string                         // what the scorer took as the answer of those that succeed
}

// wait sets what runs of an evaluation wait for that is in no journal.
func (r *evalRuns) wait(eval string, waits ...*agentv1.EvalWait) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = map[string][]*agentv1.EvalWait{eval: waits}
}

// waitsFor makes a run of an evaluation that waits.
func (r *evalRuns) waitsFor(t *testing.T, eval, id string, wait *agentv1.RunWait) {
	t.Helper()
	view, err := proto.Marshal(&agentv1.Run{Wait: wait})
	require.NoError(t, err)
	row := journal.Row{
		Kind: journal.KindRun, State: int32(agentv1.RunState_RUN_STATE_WAITING), Parent: eval, Waiting: true, WaitReason: enum.Word(wait.GetReason()), WaitSince: wait.GetSince().AsTime(), View: view,
	}
	_, _, err = r.journals.Create(t.Context(), journal.Creation{Name: project + "/runs/" + id, Owner: "test", Row: row, Entries: []journal.Entry{{
		Event: &agentv1.Event{Seq: 1, Kind: &agentv1.Event_Info{Info: &agentv1.Info{Code: "made"}}},
	}}})
	require.NoError(t, err)
}

func (r *evalRuns) waiting(eval string) []*agentv1.EvalWait {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waits[eval]
}

func (r *evalRuns) parkedFor(run string) *agentv1.RunWait {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parked[run]
}

// show writes the row of an active sample's run.
func (r *evalRuns) show(t *testing.T, sample string, row *agentv1.Run) (name string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, made := range r.made {
		if made.GetSpec().GetAttribution().GetSample() == sample {
			name = made.GetName()
		}
	}
	require.NotEmpty(t, name, "sample %s has no run", sample)
	row.Spec = r.made[name].GetSpec()
	view, err := proto.Marshal(row)
	require.NoError(t, err)
	head, err := r.journals.Open(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, r.journals.Append(t.Context(), journal.Append{
		Head: head, Row: &journal.Row{Kind: journal.KindRun, State: int32(row.GetState()), Parent: row.GetSpec().GetAttribution().GetEval(), View: view},
		Entries: []journal.Entry{{Event: &agentv1.Event{Seq: head.Seq + 1, Kind: &agentv1.Event_Info{Info: &agentv1.Info{Code: "on"}}}}},
	}))
	return name
}

func (r *evalRuns) Pin(context.Context, string, *agentv1.EvalSpec) error { return nil }

func (r *evalRuns) Validate(_ context.Context, _ string, spec *agentv1.RunSpec) ([]*agentv1.EvalWarning, error) {
	if spec.GetModel().GetModel() == "nosuch/model" {
		return nil, rpcerr.ResourceNotFound("nosuch/model")
	}
	return nil, nil
}

func (r *evalRuns) CheckSandboxes(context.Context, string, *agentv1.RunSpec) error { return nil }

func (r *evalRuns) CheckSample(string, *agentv1.RunSpec) error { return nil }

// will sets how the runs of a sample end that are made from now on.
func (r *evalRuns) will(sample string, state agentv1.RunState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states[sample] = state
}

func (r *evalRuns) CreateSample(ctx context.Context, id string, spec *agentv1.RunSpec, _ string, _ journal.Head) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := spec.GetAttribution()
	run := &agentv1.Run{Name: fmt.Sprintf("projects/%s/runs/r%d", id, len(r.made)+1), Spec: spec, State: r.states[at.GetSample()]}
	if run.GetState() == agentv1.RunState_RUN_STATE_SUCCEEDED {
		run.Scores = []*agentv1.NamedScore{{Name: "match", Score: &agentv1.Score{Value: &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Text{Text: "C"}}}}}
		if r.answer != "" {
			run.Scores[0].Score.Answer = &r.answer
		}
	}
	r.made[run.GetName()] = run
	row := journal.Row{Kind: journal.KindRun, State: int32(agentv1.RunState_RUN_STATE_RUNNING), Parent: at.GetEval()}
	_, _, err := r.journals.Create(ctx, journal.Creation{Name: run.GetName(), Owner: "test", Row: row, Entries: []journal.Entry{{
		Event: &agentv1.Event{Seq: 1, Kind: &agentv1.Event_Info{Info: &agentv1.Info{Code: "made"}}},
	}}})
	if err == nil && run.GetState() != agentv1.RunState_RUN_STATE_UNSPECIFIED {
		err = r.end(ctx, run)
	}
	return run.GetName(), err
}

func (r *evalRuns) end(ctx context.Context, run *agentv1.Run) error {
	head, err := r.journals.Open(ctx, run.GetName())
	if err != nil {
		return err
	}
	view, err := proto.Marshal(run)
	if err != nil {
		return err
	}
	row := journal.Row{Kind: journal.KindRun, State: int32(run.GetState()), Done: true, View: view}
	letter := journal.Ended(run.GetSpec().GetAttribution().GetEval(), head.Ref)
	return r.journals.Append(ctx, journal.Append{Head: head, Row: &row, Tell: []journal.Letter{letter}, Entries: []journal.Entry{{
		Event: &agentv1.Event{Seq: head.Seq + 1, Kind: &agentv1.Event_RunFinished{RunFinished: &agentv1.RunFinished{State: run.GetState()}}},
	}}})
}

func (r *evalRuns) CancelAll(ctx context.Context, names []string, _, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		run := r.made[name]
		if run == nil || run.GetState() != agentv1.RunState_RUN_STATE_UNSPECIFIED {
			continue // A test made its journal itself, or it has ended.
		}
		run.State = agentv1.RunState_RUN_STATE_CANCELLED
		if err := r.end(ctx, run); err != nil {
			return err
		}
	}
	return nil
}

func (r *evalRuns) Stuck(string) bool { return false }

func (r *evalRuns) View(_ context.Context, name string, _ bool) (*agentv1.Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return proto.CloneOf(r.made[name]), nil
}

// counted counts reads of journals, and damages some rows.
type counted struct {
	journal.Store

	events  atomic.Int64
	largest atomic.Int64 // the bytes of what was listed at once
	damaged sync.Map     // their names
}

func (c *counted) List(ctx context.Context, q journal.Query) ([]journal.Listed, error) {
	rows, err := c.Store.List(ctx, q)
	var size int64
	for _, row := range rows {
		size += int64(len(row.View))
	}
	c.largest.Store(max(c.largest.Load(), size))
	for i := range rows {
		if _, ok := c.damaged.Load(rows[i].Name); ok {
			rows[i].View = []byte("damaged")
		}
	}
	return rows, err
}

func (c *counted) Waits(ctx context.Context, parent string) ([]journal.Wait, error) {
	waits, err := c.Store.Waits(ctx, parent)
	for i := range waits {
		if _, ok := c.damaged.Load(parent); ok {
			waits[i].View = []byte("damaged")
		}
	}
	return waits, err
}

func (c *counted) Read(ctx context.Context, ref journal.Ref, r journal.Range) ([]*agentv1.Event, error) {
	events, err := c.Store.Read(ctx, ref, r)
	c.events.Add(int64(len(events)))
	return events, err
}

// evalRig is the service over a real store, called through gRPC.
type evalRig struct {
	agentv1.EvalServiceClient
	t     *testing.T
	runs  *evalRuns
	store *counted
	kept  *bodies
	notes *progress.Board
}

func serveEvals(t *testing.T) *evalRig {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "e.db"), sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	opened, err := journalsqlite.Open(t.Context(), db, nil)
	require.NoError(t, err)
	store := &counted{Store: opened}
	made := &evalRuns{journals: store, states: map[string]agentv1.RunState{}, made: map[string]*agentv1.Run{}}
	judges := eval.Judges{Scorers: score.NewRegistry(builtin.Definitions()...), Metrics: metric.NewRegistry()}
	log := slog.New(slog.DiscardHandler)
	kept := &bodies{}
	engine := eval.New(eval.Config{MaxSamples: 10, CancelPatience: waittest.Bound}, eval.Deps{Journals: store, Blobs: kept, Runs: made, Judges: judges, Replica: "test", Logger: log})
	t.Cleanup(engine.Close)
	exporter := evalexport.New(evalexport.Deps{Journals: store, Blobs: kept, Judges: judges, Samples: engine.Samples})
	notes := &progress.Board{}
	conn := grpcservertest.Serve(t, "user:ada", func(s grpc.ServiceRegistrar) {
		agentv1.RegisterEvalServiceServer(s, server.NewEvals(server.EvalsDeps{
			Engine: engine, Journals: store, Judges: judges, Exporter: exporter, Notes: notes, Bodies: kept,
			Live:   live.New(live.Deps{Engine: engine, Journals: store, Notes: notes, Waits: made.waiting, Waiting: made.parkedFor}),
			Delete: retention.New(retention.Config{}, retention.Deps{Journals: store, Logger: log}).Delete,
		}))
	})
	return &evalRig{EvalServiceClient: agentv1.NewEvalServiceClient(conn), t: t, runs: made, store: store, kept: kept, notes: notes}
}

// spec is an evaluation of samples with these ids.
func spec(ids ...string) *agentv1.EvalSpec {
	list := &agentv1.SampleList{}
	for _, id := range ids {
		list.Samples = append(list.Samples, &agentv1.Sample{Id: id, Input: []*modelv1.ChatMessage{chat.User("the question")}, Target: &agentv1.Target{Values: []string{"A"}}})
	}
	return &agentv1.EvalSpec{
		Task: "t", Dataset: &agentv1.Dataset{Name: "d", Source: &agentv1.Dataset_Inline{Inline: list}},
		Models: []*agentv1.ModelRef{{Model: "mockllm/model"}}, Scorers: []*agentv1.ScorerRef{{Name: "match"}},
	}
}

// create makes an evaluation and returns its name.
func (r *evalRig) create(s *agentv1.EvalSpec) string {
	r.t.Helper()
	made, err := r.CreateEval(r.within(), &agentv1.CreateEvalRequest{Parent: project, Spec: s})
	require.NoError(r.t, err)
	return made.GetName()
}

// done makes an evaluation whose samples all succeed, and waits for its end.
func (r *evalRig) done(ids ...string) string {
	r.t.Helper()
	for _, id := range ids {
		r.runs.will(id, agentv1.RunState_RUN_STATE_SUCCEEDED)
	}
	name := r.create(spec(ids...))
	r.watch(&agentv1.WatchEvalRequest{Name: name})
	return name
}

func (r *evalRig) within() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

// watch reads a watch to its end.
func (r *evalRig) watch(req *agentv1.WatchEvalRequest) []*agentv1.WatchEvalResponse {
	r.t.Helper()
	all, err := r.watchUntil(req, func(*agentv1.WatchEvalResponse) bool { return false })
	require.NoError(r.t, err)
	return all
}

// watchUntil reads a watch to its end, or until enough returns true.
func (r *evalRig) watchUntil(req *agentv1.WatchEvalRequest, enough func(*agentv1.WatchEvalResponse) bool) (all []*agentv1.WatchEvalResponse, err error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	stream, err := r.WatchEval(ctx, req)
	require.NoError(r.t, err)
	for {
		one, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		if all = append(all, one); enough(one) {
			return all, nil
		}
	}
}
