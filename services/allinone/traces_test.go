package allinone_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/telemetry/telemetrytest"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/allinone"
)

// script calls a tool, and then answers; its texts are content.
const script = `{"outputs": [{"tool_calls": [{"function": "think", "arguments": {"thought": "content-of-a-call"}}]}, "content-of-an-answer"]}`

// traced serves with traces, until stop, which also exports all that is left.
func traced(t *testing.T, c *telemetrytest.Collector, change func(*allinone.Config)) (s *allinone.Server, stop func()) {
	t.Helper()
	cfg := configured(t, "127.0.0.1:0")
	cfg.Telemetry.Endpoint, cfg.Telemetry.Protocol, cfg.Telemetry.Headers = c.GRPC, "grpc", config.NewSecret("x-key=header-secret")
	if change != nil {
		change(&cfg)
	}
	dir, lock := folder(t, t.TempDir())
	return start(t, cfg, allinone.Deps{Dir: dir, Lock: lock})
}

// runTo runs the script to its end.
func runTo(t *testing.T, s *allinone.Server) *agentv1.Run {
	t.Helper()
	_, runs := evals(t, s.Address(), s.Token())
	run, err := runs.CreateRun(t.Context(), &agentv1.CreateRunRequest{Parent: "projects/default", Spec: &agentv1.RunSpec{
		Input: []*modelv1.ChatMessage{chat.User("content-of-a-question")}, Model: &agentv1.ModelRef{Model: "mockllm/model", ModelArgsJson: script},
		Steps: []*agentv1.AgentRef{{Name: "react", ParamsJson: `{"submit": false}`, Tools: []*toolv1.ToolRef{{Name: "think"}}}},
	}})
	require.NoError(t, err)
	stream, err := runs.WatchRun(waittest.Context(t), &agentv1.WatchRunRequest{Name: run.GetName()})
	require.NoError(t, err)
	for err == nil {
		_, err = stream.Recv()
	}
	run, err = runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: run.GetName()})
	require.NoError(t, err)
	return run
}

// A run is one trace: its span, that of each step, the call to the service, the call at the service, and the work.
func TestARunIsOneTrace(t *testing.T) {
	c := telemetrytest.Collect(t)
	s, stop := traced(t, c, nil)
	token := s.Token().Reveal()
	run := runTo(t, s)
	stop()

	root := c.Find(t, "invoke_agent react")
	assert.Empty(t, root.Parent())
	assert.Equal(t, run.GetName(), root.Attributes["evalfleet.run"])
	assert.Equal(t, "invoke_agent", root.Attributes["gen_ai.operation.name"])
	byID := map[string]*telemetrytest.Span{}
	for _, span := range c.Spans() {
		byID[span.ID()] = span
	}
	// lineage are the names from a span up to its root.
	lineage := func(span *telemetrytest.Span) (names []string) {
		for ; span != nil; span = byID[span.Parent()] {
			names = append(names, span.GetName())
		}
		return names
	}
	const generate, execute = "evalfleet.model.v1.ModelService/Generate", "evalfleet.tool.v1.ToolService/ExecuteTools"
	var chats int
	for _, span := range c.Spans() {
		if span.GetName() != "chat model" {
			continue
		}
		chats++
		assert.Equal(t, root.Trace(), span.Trace())
		assert.Equal(t, []string{"chat model", generate, generate, "generate", "invoke_agent react"}, lineage(span))
		assert.Equal(t, "mockllm", span.Attributes["gen_ai.provider.name"])
		assert.Equal(t, "model", span.Attributes["gen_ai.request.model"])
		assert.Positive(t, span.Attributes["gen_ai.usage.input_tokens"])
		assert.Positive(t, span.Attributes["gen_ai.usage.output_tokens"])
		assert.EqualValues(t, 1, span.Attributes["evalfleet.attempts"])
	}
	assert.Equal(t, 2, chats)
	tool := c.Find(t, "execute_tool think")
	assert.Equal(t, root.Trace(), tool.Trace())
	assert.Equal(t, []string{"execute_tool think", execute, execute, "execute tools", "invoke_agent react"}, lineage(tool))

	// The caller's own call is another trace, with a link to the run's.
	var linked bool
	for _, span := range c.Spans() {
		for _, link := range span.GetLinks() {
			linked = linked || bytes.Equal(link.GetTraceId(), root.GetTraceId())
			assert.NotEqual(t, root.Trace(), span.Trace())
		}
	}
	assert.True(t, linked)
	for _, secret := range []string{"content-of", "header-secret", token} {
		assert.NotContains(t, c.Text(), secret)
	}
	assert.Equal(t, []string{"evalfleet"}, c.Services())
}

func TestContentIsInTracesWhereItIsAskedFor(t *testing.T) {
	c := telemetrytest.Collect(t)
	s, stop := traced(t, c, func(cfg *allinone.Config) { cfg.Telemetry.Content = true })
	token := s.Token().Reveal()
	runTo(t, s)
	stop()
	for _, content := range []string{"content-of-a-question", "content-of-a-call", "content-of-an-answer"} {
		assert.Contains(t, c.Text(), content)
	}
	for _, secret := range []string{"header-secret", token} {
		assert.NotContains(t, c.Text(), secret)
	}
}

// A client's trace continues in the services, over each of the ways in, and a stranger begins none.
func TestACallIsPartOfItsCallersTrace(t *testing.T) {
	c := telemetrytest.Collect(t)
	s, stop := traced(t, c, func(cfg *allinone.Config) { cfg.Telemetry.SamplerArg = "0" })
	post := func(path, body, token, trace string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Address()+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		if trace != "" {
			r.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		return answer.StatusCode
	}
	const rest, vendor, stranger, grpcs = "0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c", "2af7651916cd43dd8448eb211c80319c", "3af7651916cd43dd8448eb211c80319c"
	const generate, completion = "/api/v1/projects/default/models:generate", "/v1/chat/completions"
	asked, chatted := `{"model": "mockllm/model", "messages": [{"role": "ROLE_USER", "content": {"text": "q"}}]}`, `{"model": "mockllm/model", "messages": [{"role": "user", "content": "q"}]}`
	token := s.Token().Reveal()
	require.Equal(t, http.StatusOK, post(generate, asked, token, rest))
	require.Equal(t, http.StatusOK, post(completion, chatted, token, vendor))
	require.Equal(t, http.StatusOK, post(completion, chatted, token, ""), "not sampled")
	require.Equal(t, http.StatusUnauthorized, post(completion, chatted, "wrong", stranger))
	require.Equal(t, http.StatusUnauthorized, post(generate, asked, "wrong", stranger))
	http.DefaultClient.CloseIdleConnections()
	conn, err := grpcclient.New(s.Address(), grpcclient.Options{Token: s.Token(), FailFast: true})
	require.NoError(t, err)
	_, err = modelv1.NewModelServiceClient(conn).Generate(metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+grpcs+"-b7ad6b7169203331-01"),
		&modelv1.GenerateRequest{Parent: "projects/default", Model: "mockllm/model", Messages: []*modelv1.ChatMessage{chat.User("q")}})
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	stop()
	names := map[string][]string{}
	for _, span := range c.Spans() {
		names[span.Trace()] = append(names[span.Trace()], span.GetName())
	}
	const method = "evalfleet.model.v1.ModelService/Generate"
	assert.Equal(t, map[string][]string{
		rest:   {"POST /api/v1/", method, method, "chat model"},
		vendor: {"POST /v1/chat/completions", "chat model"},
		grpcs:  {method, method, "chat model"},
	}, names)
}

// A collector that is away costs nothing but a line in the log, and a bounded time at the end.
func TestACollectorThatIsAwayStopsNothing(t *testing.T) {
	var log bytes.Buffer
	cfg := configured(t, "127.0.0.1:0")
	cfg.Telemetry.Endpoint = "http://127.0.0.1:1"
	dir, lock := folder(t, t.TempDir())
	s := allinone.New(cfg, allinone.Deps{Dir: dir, Lock: lock, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, s.Start(t.Context()))
	run := runTo(t, s)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, run.GetState())
	require.NoError(t, s.Stop(context.WithoutCancel(t.Context()), grace))
	assert.Equal(t, 1, strings.Count(log.String(), "spans of traces cannot be exported"))
}
