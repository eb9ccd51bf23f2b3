// Package evalserver serves EvalService over the engine of evaluations.
package evalserver

import (
	"context"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/evalexport"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/reduce"
)

// Server is the EvalService.
type Server struct {
	agentv1.UnimplementedEvalServiceServer

	engine   *eval.Engine
	journals journal.Store
	judges   eval.Judges
	exporter *evalexport.Exporter
	bare     func(*agentv1.Event) *agentv1.Event
}

// New makes the service. Bare returns an event without its content.
func New(engine *eval.Engine, journals journal.Store, judges eval.Judges, exporter *evalexport.Exporter, bare func(*agentv1.Event) *agentv1.Event) *Server {
	return &Server{engine: engine, journals: journals, judges: judges, exporter: exporter, bare: bare}
}

// CreateEval checks an evaluation and makes it.
func (s *Server) CreateEval(ctx context.Context, req *agentv1.CreateEvalRequest) (*agentv1.Eval, error) {
	project, err := resource.Project("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	state, err := s.engine.Create(ctx, project, req.GetSpec(), req.GetRequestId(), req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	return s.live(ctx, project, state.Eval)
}

// GetEval gives one evaluation.
func (s *Server) GetEval(ctx context.Context, req *agentv1.GetEvalRequest) (*agentv1.Eval, error) {
	name, err := resource.Parse("name", req.GetName(), "evals")
	if err != nil {
		return nil, err
	}
	state, err := s.engine.State(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return s.live(ctx, name.Project, state.Eval)
}

// live adds to an evaluation what only the runs at work know: which of them wait.
func (s *Server) live(ctx context.Context, project string, e *agentv1.Eval) (*agentv1.Eval, error) {
	if e.GetName() == "" || e.GetProgress().GetRunning() == 0 {
		return e, nil
	}
	waiting, err := s.journals.List(ctx, journal.Query{
		Project: project, Kind: journal.KindRun, Parent: e.GetName(), States: []int32{int32(agentv1.RunState_RUN_STATE_WAITING)}, Limit: 1000,
	})
	if err != nil {
		return nil, err
	}
	e.Progress.Waiting = int32(len(waiting))
	return e, nil
}

// ListEvals lists evaluations, newest first.
func (s *Server) ListEvals(ctx context.Context, req *agentv1.ListEvalsRequest) (*agentv1.ListEvalsResponse, error) {
	project, err := resource.Project("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	position, err := resource.Position(req.GetPageToken(), req)
	if err != nil {
		return nil, err
	}
	size := resource.PageSize(req.GetPageSize())
	q := journal.Query{Project: project, Kind: journal.KindEval, Limit: size + 1}
	if position != "" {
		before, err := strconv.ParseInt(position, 10, 64)
		if err != nil {
			return nil, rpcerr.InvalidField("page_token", "it cannot be read; begin again without it")
		}
		q.Before = journal.Ref(before)
	}
	for _, state := range req.GetStates() {
		q.States = append(q.States, int32(state))
	}
	rows, err := s.journals.List(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &agentv1.ListEvalsResponse{}
	if len(rows) > size {
		rows = rows[:size]
		resp.NextPageToken = resource.PageToken(strconv.FormatInt(int64(rows[size-1].Ref), 10), req)
	}
	for _, row := range rows {
		e := &agentv1.Eval{}
		if err := proto.Unmarshal(row.View, e); err != nil {
			return nil, err
		}
		resp.Evals = append(resp.Evals, e)
	}
	return resp, nil
}

// CancelEval stops an evaluation.
func (s *Server) CancelEval(ctx context.Context, req *agentv1.CancelEvalRequest) (*agentv1.Eval, error) {
	if _, err := resource.Parse("name", req.GetName(), "evals"); err != nil {
		return nil, err
	}
	state, err := s.engine.Cancel(ctx, req.GetName(), req.GetRequestId(), req.GetReason())
	if err != nil {
		return nil, err
	}
	return state.Eval, nil
}

// ResumeEval goes on with what is not done.
func (s *Server) ResumeEval(ctx context.Context, req *agentv1.ResumeEvalRequest) (*agentv1.Eval, error) {
	name, err := resource.Parse("name", req.GetName(), "evals")
	if err != nil {
		return nil, err
	}
	state, err := s.engine.Resume(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return s.live(ctx, name.Project, state.Eval)
}

// UpdateEval changes an evaluation that goes on.
func (s *Server) UpdateEval(ctx context.Context, req *agentv1.UpdateEvalRequest) (*agentv1.Eval, error) {
	if _, err := resource.Parse("eval.name", req.GetEval().GetName(), "evals"); err != nil {
		return nil, err
	}
	changes, err := eval.ParseUpdate(req.GetEval().GetSpec(), req.GetUpdatePaths())
	if err != nil {
		return nil, err
	}
	state, err := s.engine.Update(ctx, req.GetEval().GetName(), changes, req.GetReason())
	if err != nil {
		return nil, err
	}
	return state.Eval, nil
}

// ListSamples lists an evaluation's samples.
func (s *Server) ListSamples(ctx context.Context, req *agentv1.ListSamplesRequest) (*agentv1.ListSamplesResponse, error) {
	if _, err := resource.Parse("parent", req.GetParent(), "evals"); err != nil {
		return nil, err
	}
	position, err := resource.Position(req.GetPageToken(), req)
	if err != nil {
		return nil, err
	}
	from := 0
	if position != "" {
		if from, err = strconv.Atoi(position); err != nil || from < 0 {
			return nil, rpcerr.InvalidField("page_token", "it cannot be read; begin again without it")
		}
	}
	state, samples, err := s.load(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	resp := &agentv1.ListSamplesResponse{}
	for i := from; i < len(state.Slots); i++ {
		slot := &state.Slots[i]
		r := state.Resource(slot, samples[slot.Sample])
		if len(req.GetStates()) > 0 && !slices.Contains(req.GetStates(), r.GetState()) {
			continue
		}
		if len(resp.GetSamples()) == resource.PageSize(req.GetPageSize()) {
			resp.NextPageToken = resource.PageToken(strconv.Itoa(i), req)
			break
		}
		resp.Samples = append(resp.Samples, r)
	}
	return resp, nil
}

// GetSample gives one sample.
func (s *Server) GetSample(ctx context.Context, req *agentv1.GetSampleRequest) (*agentv1.EvalSample, error) {
	name, err := resource.Parse("name", req.GetName(), "evals", "samples")
	if err != nil {
		return nil, err
	}
	state, samples, err := s.load(ctx, resource.Format(name.Project, "evals", name.IDs[0]))
	if err != nil {
		return nil, err
	}
	slot := state.Find(name.IDs[1])
	if slot == nil {
		return nil, rpcerr.ResourceNotFound(req.GetName())
	}
	return state.Resource(slot, samples[slot.Sample]), nil
}

func (s *Server) load(ctx context.Context, name string) (*eval.State, []*agentv1.Sample, error) {
	state, err := s.engine.State(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	samples, err := s.engine.Samples(ctx, state)
	return state, samples, err
}

// ListScorers lists what can judge.
func (s *Server) ListScorers(_ context.Context, req *agentv1.ListScorersRequest) (*agentv1.ListScorersResponse, error) {
	if _, err := resource.Project("parent", req.GetParent()); err != nil {
		return nil, err
	}
	resp := &agentv1.ListScorersResponse{}
	for _, d := range s.judges.Scorers.Definitions() {
		resp.Scorers = append(resp.Scorers, &agentv1.ScorerInfo{Name: d.Name, Description: d.Description, ParametersJson: string(d.Params.Schema()), Metrics: d.Metrics})
	}
	for _, d := range s.judges.Metrics.Definitions() {
		resp.Metrics = append(resp.Metrics, d.Name)
	}
	for _, d := range reduce.Definitions() {
		resp.Reducers = append(resp.Reducers, d.Name)
	}
	return resp, nil
}

// EditScore belongs to a later capability.
func (s *Server) EditScore(context.Context, *agentv1.EditScoreRequest) (*agentv1.EvalSample, error) {
	return nil, rpcerr.NotBuiltYet("editing scores")
}

// InvalidateSample belongs to a later capability.
func (s *Server) InvalidateSample(context.Context, *agentv1.InvalidateSampleRequest) (*agentv1.EvalSample, error) {
	return nil, rpcerr.NotBuiltYet("invalidating samples")
}

// ScoreEval belongs to a later capability.
func (s *Server) ScoreEval(context.Context, *agentv1.ScoreEvalRequest) (*agentv1.Eval, error) {
	return nil, rpcerr.NotBuiltYet("scoring anew")
}
