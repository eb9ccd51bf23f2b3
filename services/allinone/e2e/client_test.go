package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/config"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
)

// project is the project of all tests.
const project = "projects/default"

// client is a gRPC client of a home's server, with the generated code.
type client struct {
	conn      *grpc.ClientConn
	evals     agentv1.EvalServiceClient
	runs      agentv1.RunServiceClient
	sandboxes sandboxv1.SandboxServiceClient
	blobs     blobv1.BlobServiceClient
}

// connect returns a client that the test's end closes.
func (h *home) connect() *client { h.t.Helper(); return h.connectTo(h.address()) }

func (h *home) connectTo(address string) *client {
	h.t.Helper()
	c := h.dial(address)
	h.t.Cleanup(c.leave)
	return c
}

// leave closes the connection, for which a command that serves on would wait.
func (c *client) leave() { _ = c.conn.Close() }

func (h *home) dial(address string) *client {
	h.t.Helper()
	conn, err := grpcclient.New(address, grpcclient.Options{Token: config.NewSecret(h.token()), FailFast: true})
	require.NoError(h.t, err)
	return &client{
		conn:  conn,
		evals: agentv1.NewEvalServiceClient(conn), runs: agentv1.NewRunServiceClient(conn),
		sandboxes: sandboxv1.NewSandboxServiceClient(conn), blobs: blobv1.NewBlobServiceClient(conn),
	}
}

// within is the test's context, bounded by patience.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// create creates an evaluation and returns its name.
func (c *client) create(t *testing.T, spec *agentv1.EvalSpec) string {
	t.Helper()
	eval, err := c.evals.CreateEval(within(t), &agentv1.CreateEvalRequest{Parent: project, Spec: spec})
	require.NoError(t, err)
	return eval.GetName()
}

// onlyEval waits until there is an evaluation, the only one.
func (c *client) onlyEval(t *testing.T) (name string) {
	t.Helper()
	eventually(t, func() bool {
		list, err := c.evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project})
		require.NoError(t, err)
		if len(list.GetEvals()) == 1 {
			name = list.GetEvals()[0].GetName()
		}
		return name != ""
	}, "the evaluation is made")
	return name
}

// await watches an evaluation to its end and returns it.
func (c *client) await(t *testing.T, name string) *agentv1.Eval {
	t.Helper()
	eval, err := c.watch(t, name)
	require.NoError(t, err, "watching %s", name)
	return eval
}

// watch is await for a server that may die.
func (c *client) watch(t *testing.T, name string) (*agentv1.Eval, error) {
	t.Helper()
	ctx := within(t)
	stream, err := c.evals.WatchEval(ctx, &agentv1.WatchEvalRequest{Name: name})
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return c.evals.GetEval(ctx, &agentv1.GetEvalRequest{Name: name})
}

// endsBefore waits for the end of an evaluation, and fails if a server dies before: with several servers a watch
// continues without it.
func (c *client) endsBefore(t *testing.T, name string, death <-chan string) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := c.watch(t, name)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case dead := <-death:
		return fmt.Errorf("%s has died", dead)
	}
}

// until watches an evaluation until an event fits.
func (c *client) until(t *testing.T, name string, fits func(*agentv1.Event) bool) {
	t.Helper()
	c.untilWatched(t, name, func(r *agentv1.WatchEvalResponse) bool { return r.GetEvent() != nil && fits(r.GetEvent()) })
}

// untilWatched watches an evaluation, and its progress, until a response matches.
func (c *client) untilWatched(t *testing.T, name string, fits func(*agentv1.WatchEvalResponse) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := c.evals.WatchEval(ctx, &agentv1.WatchEvalRequest{Name: name, Progress: true})
	require.NoError(t, err)
	for {
		r, err := stream.Recv()
		require.NoError(t, err, "watching %s", name)
		if fits(r) {
			return
		}
	}
}

// samples lists all samples of an evaluation.
func (c *client) samples(t *testing.T, eval string) []*agentv1.EvalSample {
	t.Helper()
	var all []*agentv1.EvalSample
	for token := ""; ; {
		r, err := c.evals.ListSamples(within(t), &agentv1.ListSamplesRequest{Parent: eval, PageToken: token, Content: true})
		require.NoError(t, err)
		all = append(all, r.GetSamples()...)
		if token = r.GetNextPageToken(); token == "" {
			return all
		}
	}
}

// journal lists all events of a run, with content.
func (c *client) journal(t *testing.T, run string) []*agentv1.Event {
	t.Helper()
	var all []*agentv1.Event
	for {
		r, err := c.runs.ListRunEvents(within(t), &agentv1.ListRunEventsRequest{Parent: run, AfterSeq: int64(len(all)), PageSize: 1000, Content: true})
		require.NoError(t, err)
		all = append(all, r.GetEvents()...)
		if len(r.GetEvents()) == 0 || int64(len(all)) == r.GetHead() {
			return all
		}
	}
}

// eventually polls a condition that no stream reports, until it is true.
func eventually(t *testing.T, isSo func() bool, what string) {
	t.Helper()
	require.Eventually(t, isSo, patience, 20*time.Millisecond, what)
}

// scripted is the scripted model with its script in the request: entries as described for the provider mockllm.
func scripted(t *testing.T, entries ...any) *agentv1.ModelRef {
	t.Helper()
	args, err := json.Marshal(map[string]any{"outputs": entries})
	require.NoError(t, err)
	return &agentv1.ModelRef{Model: "mockllm/model", ModelArgsJson: string(args)}
}

// object is a JSON object.
type object = map[string]any

// metric returns the value of a metric, which must be there.
func metric(t *testing.T, eval *agentv1.Eval, scorer, key string) float64 {
	t.Helper()
	for _, s := range eval.GetResults().GetScores() {
		for _, m := range s.GetMetrics() {
			if s.GetName() == scorer && m.GetKey() == key {
				return m.GetValue()
			}
		}
	}
	require.Failf(t, "no such metric", "%s of %s in %v", key, scorer, eval.GetResults())
	return 0
}
