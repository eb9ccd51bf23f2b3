package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcserver/grpcservertest"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/react"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	journalsqlite "github.com/evalfleet/evalfleet/services/agentorch/internal/journal/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/retention"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/runs"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/builtin"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/server"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const project = "projects/default"

var started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// rig is a fleet whose services are served in memory.
type rig struct {
	*fleettest.Fleet
	runs  agentv1.RunServiceClient
	admin agentv1.AdminServiceClient
}

// serve starts a fleet whose model says "the answer", and serves it to ada.
func serve(t *testing.T) *rig {
	t.Helper()
	f := fleettest.New(t, fleettest.Parts{
		Open: func(ctx context.Context, db *sqlite.DB) (journal.Store, error) {
			return journalsqlite.Open(ctx, db, run.FoldRow)
		},
		Agents:  []agent.Definition{generate.Definition(), react.Definition()},
		Scorers: builtin.Definitions(),
	})
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("the answer"))
	f.Start()
	logger := slog.New(slog.DiscardHandler)
	keeper := retention.New(retention.Config{}, retention.Deps{Journals: f.Store, Logger: logger})
	r := &rig{Fleet: f}
	conn := grpcservertest.Serve(t, "user:ada", func(s grpc.ServiceRegistrar) {
		agentv1.RegisterRunServiceServer(s, server.NewRuns(server.RunsDeps{Runs: f.Runs, Store: f.Store, Evals: evals, Notes: f.Notes, Delete: keeper.Delete, Logger: logger}))
		agentv1.RegisterAdminServiceServer(s, server.NewAdmin(server.AdminConfig{
			Services: []string{"agentorch", "gateway"}, DataDir: "/data", Replica: "one", Started: started,
		}, f.Sandboxes, logger))
	})
	r.runs, r.admin = agentv1.NewRunServiceClient(conn), agentv1.NewAdminServiceClient(conn)
	return r
}

// evals shows evaluations as their rows do.
func evals(_ context.Context, _ string, rows []journal.Listed) ([]*agentv1.Eval, error) {
	all := make([]*agentv1.Eval, len(rows))
	for i, row := range rows {
		all[i] = &agentv1.Eval{}
		if err := proto.Unmarshal(row.View, all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// over is the RunService over another store and with another log.
func (r *rig) over(store journal.Store, log io.Writer) *server.Runs {
	logger := slog.New(slog.NewTextHandler(log, nil))
	made := runs.New(runs.Deps{Store: store, Engine: r.Engine, Checker: r.Runs.Checker, Patient: r.Runs.Services, Notes: r.Notes, Logger: logger})
	return server.NewRuns(server.RunsDeps{Runs: made, Store: store, Notes: r.Notes, Logger: logger})
}

// answering is the specification of a run of one model call.
func answering() *agentv1.RunSpec {
	return &agentv1.RunSpec{Prompt: "the question", Steps: []*agentv1.AgentRef{{Name: "generate"}}, Model: &agentv1.ModelRef{Model: "mockllm/model"}}
}

// create creates a run.
func (r *rig) create(spec *agentv1.RunSpec) string {
	r.T.Helper()
	made, err := r.runs.CreateRun(r.T.Context(), &agentv1.CreateRunRequest{Parent: project, Spec: spec})
	require.NoError(r.T, err)
	return made.GetName()
}

// watch reads a watch to its end.
func (r *rig) watch(request *agentv1.WatchRunRequest) (all []*agentv1.WatchRunResponse, err error) {
	r.T.Helper()
	stream, err := r.runs.WatchRun(waittest.Context(r.T), request)
	require.NoError(r.T, err)
	for {
		one, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, one)
	}
}

// finished creates a run and waits until it has ended.
func (r *rig) finished(spec *agentv1.RunSpec) string {
	r.T.Helper()
	name := r.create(spec)
	_, err := r.watch(&agentv1.WatchRunRequest{Name: name})
	require.NoError(r.T, err)
	return name
}

// hang makes the model never answer. It returns a channel that receives a value at each call.
func (r *rig) hang() <-chan struct{} {
	asked := make(chan struct{}, 8)
	r.Models.Answer = func(ctx context.Context, _ *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return asked
}
