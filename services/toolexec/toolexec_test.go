package toolexec_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver/grpcservertest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/toolexec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client serves toolexec in memory and returns its client. Its sandboxd does not answer.
func client(t *testing.T) toolv1.ToolServiceClient {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	sandboxd, err := grpcclient.New("127.0.0.1:1", grpcclient.Options{FailFast: true})
	require.NoError(t, err)
	service, err := toolexec.New(toolexec.Config{}, toolexec.Deps{Sandboxes: sandboxd, Ledger: &memory.Ledger{}, Owner: "test", Logger: log})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, service.Close(context.Background()))
		require.NoError(t, sandboxd.Close())
	})
	return toolv1.NewToolServiceClient(grpcservertest.Serve(t, "test", service.Register))
}

func TestBuiltInTools(t *testing.T) {
	t.Parallel()
	response, err := client(t).ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: "projects/default"})
	require.NoError(t, err)
	parallel := map[string]bool{}
	for _, definition := range response.GetTools() {
		parallel[definition.GetInfo().GetName()] = definition.GetParallel()
	}
	assert.Equal(t, map[string]bool{"bash": true, "python": true, "text_editor": false, "think": true}, parallel)
}

func TestRequestsAreValidated(t *testing.T) {
	t.Parallel()
	c := client(t)
	_, err := c.ListTools(t.Context(), &toolv1.ListToolsRequest{})
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err))
	stream, err := c.ExecuteTools(waittest.Context(t), &toolv1.ExecuteToolsRequest{Parent: "projects/default"})
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "there is nothing to execute")
}

func TestResultsStream(t *testing.T) {
	t.Parallel()
	stream, err := client(t).ExecuteTools(waittest.Context(t), &toolv1.ExecuteToolsRequest{
		Parent: "projects/default", RequestId: "r1",
		Tools: []*toolv1.ToolRef{{Name: "think"}, {Name: "bash"}},
		Calls: []*toolv1.ToolCall{
			{Id: "c1", Function: "think", ArgumentsJson: `{"thought":"hm"}`},
			{Id: "c2", Function: "think", ArgumentsJson: `{}`},
			{Id: "c3", Function: "bash", ArgumentsJson: `{"command":"ls"}`},
		},
	})
	require.NoError(t, err)
	results := map[string]*toolv1.ToolResult{}
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if result := event.GetResult(); result != nil {
			results[result.GetCallId()] = result
		}
	}
	require.Len(t, results, 3)
	assert.Nil(t, results["c1"].GetError())
	assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, results["c2"].GetError().GetType())
	assert.Contains(t, results["c3"].GetFailure().GetMessage(), "sandbox", "the run has none")
}

func TestOldResultsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger := &memory.Ledger{}
		key := effect.Key{Project: "default", ID: "r1/c1"}
		_, started, err := ledger.Claim(t.Context(), key, effect.Hash{}, "earlier", 0)
		require.NoError(t, err)
		require.True(t, started)
		require.NoError(t, ledger.Finish(t.Context(), key, "earlier", effect.Outcome{State: effect.Done}))

		service, err := toolexec.New(toolexec.Config{}, toolexec.Deps{Ledger: ledger, Owner: "test", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- service.Run(ctx) }()
		time.Sleep(6 * 24 * time.Hour)
		_, err = ledger.Lookup(ctx, key)
		require.NoError(t, err)
		time.Sleep(26 * time.Hour)
		synctest.Wait()
		_, err = ledger.Lookup(ctx, key)
		require.ErrorIs(t, err, effect.ErrUnknown)
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, service.Close(t.Context()))
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	require.NoError(t, (&toolexec.Config{}).Validate())
	require.ErrorContains(t, (&toolexec.Config{CallTimeout: -1}).Validate(), "call_timeout")
}
