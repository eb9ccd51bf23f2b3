package e2e_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/evalfleet/evalfleet/pkg/config"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// A faulty evaluation is refused before anything is created, with the faulty name and the known ones.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		c := h.serve()
		good := func() *agentv1.EvalSpec { return asked(1, scripted(t, object{"min_turn": 1, "output": "yes"})) }
		for name, tt := range map[string]struct {
			change func(*agentv1.EvalSpec)
			code   codes.Code
			reason errorsv1.ErrorReason
			says   []string // the fault, and the known names
		}{
			"provider": {
				func(s *agentv1.EvalSpec) { s.Models[0].Model = "mockllmm/model" },
				codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_MODEL_NOT_FOUND,
				[]string{"mockllmm", "mockllm", "openai"},
			},
			"model without a provider": {
				func(s *agentv1.EvalSpec) { s.Models[0].Model = "gpt" },
				codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST,
				[]string{"gpt", "provider/"},
			},
			"provider without a key": {
				func(s *agentv1.EvalSpec) { s.Models[0] = &agentv1.ModelRef{Model: "openai/gpt-4o"} },
				codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED,
				[]string{"openai", "OPENAI_API_KEY"},
			},
			"tool": {
				func(s *agentv1.EvalSpec) { s.Steps = react("bsh") },
				codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_TOOL_NOT_FOUND,
				[]string{"bsh", "bash"},
			},
			"driver": {
				func(s *agentv1.EvalSpec) {
					s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {Driver: "dokcer"}}
				},
				codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_DRIVER_NOT_FOUND,
				[]string{"dokcer", "local"},
			},
			"scorer": {
				func(s *agentv1.EvalSpec) { s.Scorers[0].Name = "mtch" },
				codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND,
				[]string{"mtch", "match"},
			},
			"agent": {
				func(s *agentv1.EvalSpec) { s.Steps[0].Name = "reactt" },
				codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_AGENT_NOT_FOUND,
				[]string{"reactt", "react"},
			},
			"parameter": {
				func(s *agentv1.EvalSpec) { s.Scorers[0].ParamsJson = `{"locaton": "end"}` },
				codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST,
				[]string{"locaton", "location"},
			},
			"tools without a sandbox": {
				func(s *agentv1.EvalSpec) { s.Steps = react("bash") },
				codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST,
				[]string{"bash", "sandbox"},
			},
			"dataset": {
				func(s *agentv1.EvalSpec) { s.Dataset.Source = nil },
				codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST,
				[]string{"dataset"},
			},
		} {
			spec := good()
			tt.change(spec)
			_, err := c.evals.CreateEval(within(t), &agentv1.CreateEvalRequest{Parent: project, Spec: spec})
			if !assert.Error(t, err, name) {
				continue
			}
			assert.Equal(t, tt.code, rpcerr.Code(err), "%s: %v", name, err)
			assert.Equal(t, tt.reason, rpcerr.Reason(err), "%s: %v", name, err)
			for _, word := range tt.says {
				assert.ErrorContains(t, err, word, name)
			}
		}
		list, err := c.evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project})
		require.NoError(t, err)
		assert.Empty(t, list.GetEvals(), "nothing was made")
	})
}

// Every call needs the token, over gRPC and REST, and a wrong token is distinguished from none.
func TestTokens(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		h.serve()
		for name, token := range map[string]config.Secret{"none": {}, "wrong": config.NewSecret("wrong")} {
			conn, err := grpcclient.New(h.address(), grpcclient.Options{Token: token, FailFast: true})
			require.NoError(t, err)
			_, err = agentv1.NewEvalServiceClient(conn).ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project})
			assert.Equal(t, codes.Unauthenticated, rpcerr.Code(err), "%s: %v", name, err)
			assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_TOKEN_INVALID, rpcerr.Reason(err), name)
			assert.NotContains(t, err.Error(), h.tokenFile, "%s: where the right one is concerns no stranger", name)
			stream, err := agentv1.NewEvalServiceClient(conn).WatchEval(within(t), &agentv1.WatchEvalRequest{Name: project + "/evals/none"})
			if err == nil {
				_, err = stream.Recv()
			}
			assert.Equal(t, codes.Unauthenticated, rpcerr.Code(err), "%s: %v", name, err)
			require.NoError(t, conn.Close())

			r := h.rest()
			r.token = token.Reveal()
			status, answer := r.do(t, "GET", "/api/v1/"+project+"/evals", nil)
			assert.Equal(t, http.StatusUnauthorized, status, answer)
			assert.Contains(t, answer, "token", name)
		}
		end := h.run("eval", "list", "--server", h.address(), "--token-file", h.write("other-token", "wrong\n"))
		assert.Equal(t, 3, end.code, end.err)
		assert.Contains(t, end.err, "--token-file", "the next step")
	})
}

// A request over 4 MiB is refused with the bound, and the server continues.
func TestTooLargeRequest(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		c := h.serve()
		conn, err := grpc.NewClient(h.address(), grpc.WithTransportCredentials(insecure.NewCredentials())) // Ours would not even send it.
		require.NoError(t, err)
		defer conn.Close()
		ctx := metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer "+h.token())
		spec := asked(1, scripted(t))
		spec.MetadataJson = `{"much": "` + strings.Repeat("x", 4<<20) + `"}`
		_, err = agentv1.NewEvalServiceClient(conn).CreateEval(ctx, &agentv1.CreateEvalRequest{Parent: project, Spec: spec})
		assert.Equal(t, codes.InvalidArgument, rpcerr.Code(rpcerr.FromStatus(err)), "%v", err)
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE, rpcerr.Reason(rpcerr.FromStatus(err)))
		assert.ErrorContains(t, err, "4194304")

		status, answer := h.rest().do(t, "POST", "/api/v1/"+project+"/evals", object{"spec": object{"metadataJson": strings.Repeat("x", 8<<20)}})
		assert.Contains(t, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, status)
		assert.Contains(t, answer, "large", "%.200s", answer)

		_, err = c.evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project})
		assert.NoError(t, err, "the server goes on")
	})
}

// A faulty task file, dataset or command line is refused with the position, and the exit code shows that nothing was
// started.
func TestWrongFilesAndFlags(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single)
	c := h.serve()
	rows := h.write("rows.jsonl", `{"question": "Q", "answer": "A"}`+"\n"+`{"question": "Q"}`+"\n")
	for name, tt := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"unknown key":       {[]string{"eval", "run", h.write("key.yaml", "task: t\ndataste: x.jsonl\n")}, 2, []string{"key.yaml:2", "dataste", "dataset"}},
		"no such file":      {[]string{"eval", "run", h.write("file.yaml", "dataset: nothing.jsonl\nmodel: mockllm/model\n")}, 2, []string{"file.yaml:1", "nothing.jsonl"}},
		"no such task":      {[]string{"eval", "run", "nothing.yaml"}, 2, []string{"nothing.yaml"}},
		"no model":          {[]string{"eval", "run", h.write("model.yaml", "dataset: [{input: Q}]\n")}, 2, []string{"model.yaml", "-m PROVIDER/MODEL"}},
		"row without field": {[]string{"eval", "run", h.write("row.yaml", "dataset: {file: "+rows+", fields: {input: question, target: answer}}\nmodel: mockllm/model\n")}, 2, []string{"row.yaml", "2", "answer"}},
		"unknown model":     {[]string{"eval", "run", h.write("known.yaml", "dataset: [{input: Q}]\nmodel: nosuch/model\n")}, 2, []string{"nosuch", "mockllm", "evalfleet models"}},
		"unknown scorer":    {[]string{"eval", "run", h.write("scorer.yaml", "dataset: [{input: Q}]\nmodel: mockllm/model\nscorer: mtch\n")}, 2, []string{"mtch", "match"}},
		"unknown tool":      {[]string{"eval", "run", h.write("tool.yaml", "dataset: [{input: Q}]\nmodel: mockllm/model\nsandbox: local\nsolver: {react: {tools: [bsh]}}\n")}, 2, []string{"bsh", "bash", "evalfleet tools"}},
		"unknown driver":    {[]string{"eval", "run", h.write("driver.yaml", "dataset: [{input: Q}]\nmodel: mockllm/model\nsandbox: dokcer\n")}, 2, []string{"dokcer", "local"}},
		"unknown flag":      {[]string{"eval", "run", "--modle", "x"}, 2, []string{"--modle", "--help"}},
		"unknown command":   {[]string{"evla"}, 2, []string{"evla", "eval"}},
		"no server there":   {[]string{"eval", "list", "--server", "127.0.0.1:1"}, 3, []string{"127.0.0.1:1", "evalfleet serve"}},
		"unknown eval":      {[]string{"eval", "show", "nothing"}, 1, []string{"nothing", "evalfleet eval list"}},
	} {
		end := h.run(tt.args...)
		assert.Equal(t, tt.code, end.code, "%s: %s", name, end.err)
		for _, word := range tt.says {
			assert.Contains(t, end.err, word, name)
		}
		assert.NotContains(t, end.err, "goroutine", name)
	}
	list, err := c.evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project})
	require.NoError(t, err)
	assert.Empty(t, list.GetEvals(), "nothing was begun")
}

// A port in use, a locked data directory, an address that others could reach: serve reports it and ends.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	h := newHome(t, &shipped, single)
	h.serve()
	other := newHomeBeside(h)
	for name, tt := range map[string]struct {
		in   *home
		args []string
		says []string
	}{
		"port in use":             {other, []string{"--listen", taken.Addr().String()}, []string{taken.Addr().String(), "in use", "--listen"}},
		"data directory in use":   {h, nil, []string{h.dir, h.address()}},
		"address for all":         {other, []string{"--listen", "0.0.0.0:0"}, []string{"0.0.0.0:0", "127.0.0.1"}},
		"no address":              {other, []string{"--listen", "nowhere"}, []string{"listen"}},
		"unknown target":          {other, []string{"--target", "modelgww"}, []string{"modelgww", "modelgw"}},
		"configuration with typo": {other, []string{"--config", h.write("config.yaml", "gatewya: {}\n")}, []string{"config.yaml", "gatewya"}},
	} {
		end := tt.in.run(append([]string{"serve"}, tt.args...)...)
		assert.NotZero(t, end.code, name)
		for _, word := range tt.says {
			assert.Contains(t, end.err, word, name)
		}
	}
}

// newHomeBeside is another data directory in the same slot.
func newHomeBeside(h *home) *home {
	return &home{t: h.t, build: h.build, form: h.form, dir: h.dir + "-beside", logs: h.logs}
}
