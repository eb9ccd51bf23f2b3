package cli_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/allinone/internal/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buffer is a stream of a process that a test may read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// command is a running command line.
type command struct {
	stdout, stderr buffer
	signals        chan os.Signal
	code           chan int
}

// begin runs a command line with an environment of its own.
func begin(t *testing.T, args ...string) *command {
	t.Helper()
	return beginWith(t, strings.NewReader(""), args...)
}

// beginWith is begin with something on standard input.
func beginWith(t *testing.T, stdin io.Reader, args ...string) *command {
	t.Helper()
	return beginIn(t, nil, stdin, args...)
}

// beginIn is beginWith with further variables of the environment.
func beginIn(t *testing.T, variables map[string]string, stdin io.Reader, args ...string) *command {
	t.Helper()
	c := &command{signals: make(chan os.Signal, 4), code: make(chan int, 1)}
	home := t.TempDir()
	env := map[string]string{"HOME": home, "EVALFLEET_LOG_DIR": filepath.Join(home, "logs")}
	maps.Copy(env, variables)
	none := func() int { return 0 }
	go func() {
		c.code <- cli.Main(context.WithoutCancel(t.Context()), cli.Process{
			Name: "evalfleet", Stdin: stdin, Stdout: &c.stdout, Stderr: &c.stderr, Signals: c.signals, StdoutWidth: none, StderrWidth: none, StderrHeight: none,
			Env: func(name string) (string, bool) {
				value, ok := env[name]
				return value, ok
			},
		}, args)
	}()
	return c
}

// end waits for a command line and returns its exit code.
func (c *command) end(t *testing.T) int {
	t.Helper()
	return waittest.For(t, c.code, "the end of the command")
}

// server is a server whose evaluations behave as a test defines.
type server struct {
	agentv1.UnimplementedEvalServiceServer
	agentv1.UnimplementedRunServiceServer
	blobv1.UnimplementedBlobServiceServer
	sandboxv1.UnimplementedSandboxServiceServer
	toolv1.UnimplementedToolServiceServer
	modelv1.UnimplementedModelServiceServer

	mu      sync.Mutex
	bodies  map[string][]byte
	created *agentv1.CreateEvalRequest
	eval    *agentv1.Eval
	// evals are the ids of further evaluations; if there are any, other ids are not found. samples are those of each.
	evals   []string
	samples []*agentv1.EvalSample
	// events are those of the ended run, warnings those of its creation.
	events   []*agentv1.Event
	warnings []*agentv1.EvalWarning
	// keyed are the providers that have a key, PROVIDER or PROVIDER/ACCOUNT.
	keyed []string
	// refusal, if set, answers every CreateEval.
	refusal error
	// runs are the ended runs that are listed in addition to those of every server; undeletable is the error of a
	// deletion.
	runs        []string
	undeletable map[string]error
	deleted     []string
	// watch answers watches, by how many there were before.
	watch   func(n int, req *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error
	watches int
	// export, if set, answers exports.
	export    func(req *agentv1.ExportEvalRequest, stream agentv1.EvalService_ExportEvalServer) error
	cancelled chan string
	// away is a service that does not answer the server, and listing tools waits until found is closed.
	away  string
	found chan struct{}
}

func (s *server) CreateEval(_ context.Context, req *agentv1.CreateEvalRequest) (*agentv1.Eval, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created = req
	return s.eval, s.refusal
}

func (s *server) ListEvals(context.Context, *agentv1.ListEvalsRequest) (*agentv1.ListEvalsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []*agentv1.Eval{s.eval}
	for _, id := range s.evals {
		all = append(all, &agentv1.Eval{Name: "projects/default/evals/" + id})
	}
	return &agentv1.ListEvalsResponse{Evals: all}, nil
}

func (s *server) ListProviders(context.Context, *modelv1.ListProvidersRequest) (*modelv1.ListProvidersResponse, error) {
	var all []*modelv1.Provider
	for _, name := range []string{"anthropic", "google", "grok", "mockllm", "openai"} {
		account := &modelv1.Account{Name: "default", Usable: slices.Contains(s.keyed, name)}
		if !account.GetUsable() {
			account.Problem = "set the key"
		}
		team := &modelv1.Account{Name: "team", Usable: slices.Contains(s.keyed, name+"/team")}
		cloud := &modelv1.Account{Name: "default", Service: "azure", Usable: slices.Contains(s.keyed, name+"/azure")}
		all = append(all, &modelv1.Provider{Name: name, Accounts: []*modelv1.Account{account, team, cloud}})
	}
	return &modelv1.ListProvidersResponse{Providers: all}, nil
}

// CheckAccounts finds what is in keyed.
func (s *server) CheckAccounts(_ context.Context, r *modelv1.CheckAccountsRequest) (*modelv1.CheckAccountsResponse, error) {
	provider, _, _ := strings.Cut(r.GetModel(), "/")
	check := &modelv1.AccountCheck{Provider: provider, Account: "default", Key: 1, Steps: []*modelv1.AccountCheckStep{
		{Name: "key", Result: modelv1.AccountCheckResult_ACCOUNT_CHECK_RESULT_PROVEN, Detail: "it is set"},
	}}
	if check.Failed = !slices.Contains(s.keyed, provider); check.GetFailed() {
		check.Steps = append(check.Steps, &modelv1.AccountCheckStep{Name: "list", Result: modelv1.AccountCheckResult_ACCOUNT_CHECK_RESULT_FAILED, Detail: "the key is refused (status 401)"})
	}
	return &modelv1.CheckAccountsResponse{Checks: []*modelv1.AccountCheck{check}}, nil
}

func (s *server) ListModels(context.Context, *modelv1.ListModelsRequest) (*modelv1.ListModelsResponse, error) {
	return &modelv1.ListModelsResponse{Models: []*modelv1.Model{{ShortName: "mockllm/model"}, {ShortName: "openai/ft-ours"}}}, nil
}

func (s *server) ListTools(ctx context.Context, _ *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
	if s.found != nil {
		select {
		case <-s.found:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	bash := &toolv1.ToolInfo{Name: "bash", Description: "Run a command.\nIt has a shell."}
	return &toolv1.ListToolsResponse{Tools: []*toolv1.ToolDefinition{{Info: bash}}}, nil
}

// UploadFile stores the content of a file under its path.
func (s *server) UploadFile(stream sandboxv1.SandboxService_UploadFileServer) error {
	var path string
	var content []byte
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		path += r.GetPath()
		content = append(content, r.GetChunk()...)
	}
	s.mu.Lock()
	s.bodies[path] = content
	s.mu.Unlock()
	return stream.SendAndClose(&sandboxv1.UploadFileResponse{})
}

func (s *server) ListDrivers(context.Context, *sandboxv1.ListDriversRequest) (*sandboxv1.ListDriversResponse, error) {
	return &sandboxv1.ListDriversResponse{Drivers: []*sandboxv1.Driver{{Name: "docker"}, {Name: "local"}}}, nil
}

func (s *server) ListSandboxes(context.Context, *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	box := &sandboxv1.Sandbox{Name: "projects/default/sandboxes/sb-1", State: sandboxv1.SandboxState_SANDBOX_STATE_READY, Spec: &sandboxv1.SandboxSpec{Driver: "local"}}
	return &sandboxv1.ListSandboxesResponse{Sandboxes: []*sandboxv1.Sandbox{box}}, nil
}

// ListRuns returns a running run and one that has ended.
func (s *server) ListRuns(_ context.Context, req *agentv1.ListRunsRequest) (*agentv1.ListRunsResponse, error) {
	var runs []*agentv1.Run
	for id, state := range map[string]agentv1.RunState{"r-on": agentv1.RunState_RUN_STATE_RUNNING, "r-over": agentv1.RunState_RUN_STATE_SUCCEEDED} {
		if len(req.GetStates()) == 0 || slices.Contains(req.GetStates(), state) {
			runs = append(runs, &agentv1.Run{Name: "projects/default/runs/" + id, State: state, Spec: &agentv1.RunSpec{Model: &agentv1.ModelRef{Model: "mockllm/model"}}})
		}
	}
	for _, id := range s.runs {
		runs = append(runs, &agentv1.Run{Name: "projects/default/runs/" + id, State: agentv1.RunState_RUN_STATE_SUCCEEDED})
	}
	slices.SortFunc(runs, func(a, b *agentv1.Run) int { return strings.Compare(a.GetName(), b.GetName()) })
	return &agentv1.ListRunsResponse{Runs: runs}, nil
}

// CreateRun returns the run that has ended.
func (s *server) CreateRun(context.Context, *agentv1.CreateRunRequest) (*agentv1.Run, error) {
	return &agentv1.Run{Name: "projects/default/runs/r-over", Warnings: s.warnings}, nil
}

// WatchRun sends the events of the run that has ended.
func (s *server) WatchRun(_ *agentv1.WatchRunRequest, stream agentv1.RunService_WatchRunServer) error {
	for _, e := range s.events {
		if err := stream.Send(&agentv1.WatchRunResponse{Update: &agentv1.WatchRunResponse_Event{Event: e}}); err != nil {
			return err
		}
	}
	return nil
}

// DeleteRun notes the run.
func (s *server) DeleteRun(_ context.Context, req *agentv1.DeleteRunRequest) (*agentv1.DeleteRunResponse, error) {
	id := path.Base(req.GetName())
	if err := s.undeletable[id]; err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted = append(s.deleted, id)
	return &agentv1.DeleteRunResponse{}, nil
}

// ListFiles has a file and a folder in /work, which is the working directory.
func (s *server) ListFiles(_ context.Context, req *sandboxv1.ListFilesRequest) (*sandboxv1.ListFilesResponse, error) {
	if p := req.GetPath(); p != "/work" && p != "." || req.GetSandbox() != "projects/default/sandboxes/sb-1" {
		return nil, rpcerr.FileNotFound(p, "no %s", p)
	}
	return &sandboxv1.ListFilesResponse{Files: []*sandboxv1.FileInfo{
		{Path: "data.csv", Type: sandboxv1.FileType_FILE_TYPE_FILE}, {Path: "docs", Type: sandboxv1.FileType_FILE_TYPE_DIRECTORY},
	}}, nil
}

func (s *server) GetEval(_ context.Context, r *agentv1.GetEvalRequest) (*agentv1.Eval, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.evals) > 0 && r.GetName() != s.eval.GetName() {
		return nil, rpcerr.ResourceNotFound(r.GetName())
	}
	return s.eval, nil
}

func (s *server) GetRun(_ context.Context, r *agentv1.GetRunRequest) (*agentv1.Run, error) {
	all, err := s.ListRuns(context.Background(), &agentv1.ListRunsRequest{})
	for _, run := range all.GetRuns() {
		if run.GetName() == r.GetName() {
			return run, err
		}
	}
	return nil, rpcerr.ResourceNotFound(r.GetName())
}

func (s *server) ListSamples(_ context.Context, r *agentv1.ListSamplesRequest) (*agentv1.ListSamplesResponse, error) {
	var all []*agentv1.EvalSample
	for _, sample := range s.samples {
		if len(r.GetStates()) == 0 || slices.Contains(r.GetStates(), sample.GetState()) {
			all = append(all, sample)
		}
	}
	return &agentv1.ListSamplesResponse{Samples: all}, nil
}

// become sets the state of the evaluation from now on; nil leaves it unchanged. It returns the evaluation.
func (s *server) become(e *agentv1.Eval) *agentv1.Eval {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e != nil {
		s.eval = e
	}
	return s.eval
}

func (s *server) ExportEval(req *agentv1.ExportEvalRequest, stream agentv1.EvalService_ExportEvalServer) error {
	if s.export == nil {
		return s.UnimplementedEvalServiceServer.ExportEval(req, stream)
	}
	return s.export(req, stream)
}

func (s *server) WatchEval(req *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
	s.mu.Lock()
	n := s.watches
	s.watches++
	s.mu.Unlock()
	return s.watch(n, req, stream)
}

func (s *server) CancelEval(_ context.Context, req *agentv1.CancelEvalRequest) (*agentv1.Eval, error) {
	s.cancelled <- req.GetReason()
	return s.eval, nil
}

func (s *server) GetBlob(_ context.Context, req *blobv1.GetBlobRequest) (*blobv1.GetBlobResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.bodies[req.GetHash()]; !ok {
		return nil, rpcerr.ResourceNotFound(req.GetHash())
	}
	return &blobv1.GetBlobResponse{}, nil
}

func (s *server) PutBlob(_ context.Context, req *blobv1.PutBlobRequest) (*contentv1.BlobRef, error) {
	return s.keep(req.GetContent()), nil
}

func (s *server) UploadBlob(stream blobv1.BlobService_UploadBlobServer) error {
	var all []byte
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(s.keep(all))
		}
		if err != nil {
			return err
		}
		all = append(all, req.GetChunk()...)
	}
}

func (s *server) keep(content []byte) *contentv1.BlobRef {
	sum := sha256.Sum256(content)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies[hex.EncodeToString(sum[:])] = content
	return &contentv1.BlobRef{Hash: hex.EncodeToString(sum[:])}
}

// serve serves s and returns the flags that lead there.
func serve(t *testing.T, s *server) []string {
	t.Helper()
	s.bodies, s.cancelled = map[string][]byte{}, make(chan string, 1)
	g, err := grpcserver.New(grpcserver.Options{
		Logger: slog.New(slog.DiscardHandler), Auth: auth.NewTokens("", map[string]config.Secret{"admin": config.NewSecret("right")}),
	})
	require.NoError(t, err)
	agentv1.RegisterEvalServiceServer(g, s)
	agentv1.RegisterRunServiceServer(g, s)
	blobv1.RegisterBlobServiceServer(g, s)
	sandboxv1.RegisterSandboxServiceServer(g, s)
	toolv1.RegisterToolServiceServer(g, s)
	modelv1.RegisterModelServiceServer(g, s)
	if s.away != "" {
		g.SetPeer("modelgw", true)
		g.SetPeer(s.away, false)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		assert.NoError(t, waittest.For(t, served, "the server to end"))
	})
	return []string{"--server", l.Addr().String(), "--token-file", tokenFile(t, "right")}
}

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(token), 0o600))
	return path
}
