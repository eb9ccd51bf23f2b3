package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/lifecycle"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// thing is a service with one RPC, and notes of its life.
type thing struct {
	toolv1.UnimplementedToolServiceServer
	parts  daemon.Parts
	fails  chan error // what Run ends with, beside its context
	closed bool
}

func (s *thing) Register(r grpc.ServiceRegistrar) { toolv1.RegisterToolServiceServer(r, s) }

func (s *thing) Run(ctx context.Context) error {
	select {
	case err := <-s.fails:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (s *thing) Close(context.Context) error { s.closed = true; return nil }

// ListTools answers with what the caller is known as.
func (s *thing) ListTools(ctx context.Context, _ *toolv1.ListToolsRequest) (*toolv1.ListToolsResponse, error) {
	return &toolv1.ListToolsResponse{NextPageToken: auth.FromContext(ctx).Name}, nil
}

// configuration is that of the thing.
type configuration struct {
	daemon.Config `yaml:",inline"`

	thing *thing
	build error
}

func (c *configuration) program() daemon.Program {
	return daemon.Program{
		Name: "thing", Listen: "127.0.0.1:0", Calls: []string{"modelgw", "sandboxd"}, Effects: true,
		Build: func(ctx context.Context, parts daemon.Parts) (daemon.Server, error) {
			if c.build != nil {
				return nil, c.build
			}
			c.thing.parts = parts
			return daemon.GRPC(ctx, parts, c.thing)
		},
	}
}

func (c *configuration) Validate() error { return c.Alone(c.program()) }

func (c *configuration) Process() (daemon.Config, daemon.Program) { return c.Config, c.program() }

func command(env map[string]string, args ...string) daemon.Command {
	return daemon.Command{Args: args, Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }, Stderr: io.Discard}
}

// environment is all that the thing needs, with a data directory of its own.
func environment(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"EVALFLEET_DATA_DIR": filepath.Join(t.TempDir(), "made", "here"), "EVALFLEET_TOKEN_FILE": filepath.Join(t.TempDir(), "token"), "EVALFLEET_BLOB_DIR": t.TempDir(),
		"EVALFLEET_MODELGW_ADDRESS": "127.0.0.1:1", "EVALFLEET_SANDBOXD_ADDRESS": "127.0.0.1:1",
	}
}

// start runs the thing and returns its address, and what ends it and returns the error it ended with.
func start(t *testing.T, cfg *configuration, env map[string]string) (address string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	serving, done := make(chan net.Addr, 1), make(chan error, 1)
	c := command(env)
	c.Ready = func(a net.Addr) { serving <- a }
	go func() { done <- daemon.Run(ctx, c, cfg) }()
	select {
	case a := <-serving:
		return a.String(), func() error { cancel(); return waittest.For(t, done, "the end of the program that was told to stop") }
	case err := <-done:
		cancel()
		require.NoError(t, err)
		return "", nil
	case <-time.After(waittest.Bound):
		cancel()
		require.FailNow(t, "the program neither serves nor ends")
		return "", nil
	}
}

// who calls with a token and returns as whom.
func who(t *testing.T, address string, token string) (string, error) {
	t.Helper()
	options := grpcclient.Options{}
	if token != "" {
		secret, err := auth.ReadToken(token)
		require.NoError(t, err)
		options.Token = secret
	}
	conn, err := grpcclient.New(address, options)
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: toolv1.ToolService_ServiceDesc.ServiceName})
	require.NoError(t, err)
	assert.Equal(t, healthv1.HealthCheckResponse_SERVING, health.GetStatus())
	answer, err := toolv1.NewToolServiceClient(conn).ListTools(t.Context(), &toolv1.ListToolsRequest{Parent: "projects/default"})
	return answer.GetNextPageToken(), err
}

func TestEverythingThatIsMissingIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	err := daemon.Run(t.Context(), command(map[string]string{"EVALFLEET_LISTEN": "0.0.0.0:1", "EVALFLEET_MODELGW_ADDRESS": "m:1"}), &configuration{})
	for _, name := range []string{"allow_remote", "EVALFLEET_DATA_DIR", "EVALFLEET_TOKEN_FILE", "EVALFLEET_TOKEN)", "EVALFLEET_SANDBOXD_ADDRESS"} {
		assert.ErrorContains(t, err, name)
	}
	assert.NotContains(t, err.Error(), "EVALFLEET_MODELGW_ADDRESS")
}

func TestArgumentsAndKeysThatAreNotKnown(t *testing.T) {
	t.Parallel()
	assert.ErrorContains(t, daemon.Run(t.Context(), command(nil, "serve"), &configuration{}), `unexpected argument "serve"`)
	assert.ErrorContains(t, daemon.Run(t.Context(), command(nil, "-confg", "x"), &configuration{}), "confg")
	file := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("data_dri: x\n"), 0o600))
	assert.ErrorContains(t, daemon.Run(t.Context(), command(map[string]string{"EVALFLEET_CONFIG": file}), &configuration{}), "data_dri")
	assert.Equal(t, 0, daemon.Main(command(nil, "-h"), &configuration{}))
	assert.Equal(t, 1, daemon.Main(command(nil), &configuration{}))
}

// Every service shows its metrics at the address of its calls, to whom it knows.
func TestAServiceShowsItsMetrics(t *testing.T) {
	t.Parallel()
	env := environment(t)
	address, stop := start(t, &configuration{thing: &thing{}}, env)
	token, err := os.ReadFile(env["EVALFLEET_TOKEN_FILE"])
	require.NoError(t, err)
	_, err = who(t, address, env["EVALFLEET_TOKEN_FILE"])
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path, token string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(body)
	}
	status, page := get("/metrics", strings.TrimSpace(string(token)))
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, page, `evalfleet_rpc_duration_seconds_count{code="OK",method="/evalfleet.tool.v1.ToolService/ListTools",service="thing"} 1`)
	assert.Contains(t, page, "go_goroutines")
	status, page = get("/metrics", "wrong")
	assert.Equal(t, http.StatusUnauthorized, status)
	assert.JSONEq(t, `{"error":{"code":401,"status":"UNAUTHENTICATED","message":"the token is not known to thing; a fleet's services and clients share one",
		"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TOKEN_INVALID","domain":"evalfleet.dev"}]}}`, page)
	status, _ = get("/other", "any")
	assert.Equal(t, http.StatusNotFound, status)
	client.CloseIdleConnections()
	require.NoError(t, stop())
}

func TestAServiceHasItsPartsAndEndsInGoodOrder(t *testing.T) {
	t.Parallel()
	cfg, env := &configuration{thing: &thing{}}, environment(t)
	address, stop := start(t, cfg, env)
	_, err := who(t, address, "")
	assert.Equal(t, codes.Unauthenticated, rpcerr.Code(err))
	assert.NotContains(t, err.Error(), env["EVALFLEET_TOKEN_FILE"], "where the token is concerns no stranger")
	name, err := who(t, address, env["EVALFLEET_TOKEN_FILE"])
	require.NoError(t, err)
	assert.Equal(t, "admin", name)

	parts := cfg.thing.parts
	assert.NotNil(t, parts.Ledger)
	assert.Len(t, parts.Peers, 2)
	assert.Equal(t, []string{"thing"}, parts.Services)
	assert.FileExists(t, filepath.Join(env["EVALFLEET_DATA_DIR"], "thing.db"))
	require.NoError(t, stop())
	assert.True(t, cfg.thing.closed)

	next := &configuration{thing: &thing{}}
	_, stop = start(t, next, env)
	require.NoError(t, stop())
	assert.NotEqual(t, parts.Owner, next.thing.parts.Owner, "each process has a name of its own")
}

func TestATokenInTheEnvironmentNeedsNoFile(t *testing.T) {
	t.Parallel()
	env := environment(t)
	delete(env, "EVALFLEET_TOKEN_FILE")
	env["EVALFLEET_TOKEN"] = "the right token, long enough"
	address, stop := start(t, &configuration{thing: &thing{}}, env)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(env["EVALFLEET_TOKEN"]), 0o600))
	_, err := who(t, address, file)
	require.NoError(t, err)
	require.NoError(t, stop())
}

func TestAPortInUseIsNamed(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	env := environment(t)
	env["EVALFLEET_LISTEN"] = taken.Addr().String()
	err = daemon.Run(t.Context(), command(env), &configuration{thing: &thing{}})
	require.ErrorContains(t, err, taken.Addr().String()+" is in use; ")
	assert.NoDirExists(t, env["EVALFLEET_DATA_DIR"], "a start that failed leaves nothing behind")
	assert.NoFileExists(t, env["EVALFLEET_TOKEN_FILE"])

	require.NoError(t, os.MkdirAll(env["EVALFLEET_DATA_DIR"], 0o700))
	require.ErrorContains(t, daemon.Run(t.Context(), command(env), &configuration{thing: &thing{}}), " is in use; ")
	assert.NoFileExists(t, env["EVALFLEET_TOKEN_FILE"], "nor where the folder was there before")
}

func TestATokenThatCanBeGuessedIsRefused(t *testing.T) {
	t.Parallel()
	env := environment(t)
	env["EVALFLEET_TOKEN"] = "hunter2"
	err := daemon.Run(t.Context(), command(env), &configuration{thing: &thing{}})
	require.ErrorContains(t, err, "token (EVALFLEET_TOKEN): the token has 7 characters and needs at least 16")
	assert.NotContains(t, err.Error(), "hunter2")
}

// A process says in its log when the token can be read on its way to it.
func TestAnAddressForOthersIsWarnedOf(t *testing.T) {
	t.Parallel()
	for address, warned := range map[string]bool{"127.0.0.1:0": false, "localhost:0": false, "[::1]:0": false, "0.0.0.0:0": true, ":7460": true, "10.0.0.1:7460": true} {
		var log strings.Builder
		daemon.WarnInClear(address, slog.New(slog.NewTextHandler(&log, nil)))
		assert.Equal(t, warned, strings.Contains(log.String(), "not encrypted"), address)
	}
}

func TestOneProcessServesADataDirectory(t *testing.T) {
	t.Parallel()
	env := environment(t)
	address, stop := start(t, &configuration{thing: &thing{}}, env)
	err := daemon.Run(t.Context(), command(env), &configuration{thing: &thing{}})
	assert.ErrorContains(t, err, fmt.Sprintf("data directory %s is held by process %d, which serves at %s; stop it, or name another with data_dir (EVALFLEET_DATA_DIR)", env["EVALFLEET_DATA_DIR"], os.Getpid(), address))
	require.NoError(t, stop())
	_, stop = start(t, &configuration{thing: &thing{}}, env)
	require.NoError(t, stop(), "it was let go")
}

func TestAServiceThatFailsEndsTheProcess(t *testing.T) {
	t.Parallel()
	cfg := &configuration{thing: &thing{fails: make(chan error, 1)}}
	ready := make(chan struct{})
	c := command(environment(t))
	c.Ready = func(net.Addr) { close(ready) }
	done := make(chan error, 1)
	go func() { done <- daemon.Run(t.Context(), c, cfg) }()
	waittest.For(t, ready, "the program to serve")
	cfg.thing.fails <- errors.New("the disk is gone")
	assert.ErrorContains(t, waittest.For(t, done, "the end of the program whose service failed"), "thing: the disk is gone")
	assert.True(t, cfg.thing.closed)

	env := environment(t)
	assert.ErrorContains(t, daemon.Run(t.Context(), command(env), &configuration{build: errors.New("no model")}), "start thing: no model")
	_, stop := start(t, &configuration{thing: &thing{}}, env)
	require.NoError(t, stop(), "a start that failed leaves nothing behind")
}

func TestAnAddressThatOthersReachMustBeAllowed(t *testing.T) {
	t.Parallel()
	assert.NoError(t, (&daemon.Config{}).Validate())
	assert.ErrorContains(t, (&daemon.Config{Listen: "0.0.0.0:80"}).Validate(), "allow_remote")
	assert.NoError(t, (&daemon.Config{Listen: "0.0.0.0:80", AllowRemote: true}).Validate())
	assert.NoError(t, (&daemon.Config{Listen: "[::1]:80"}).Validate())
	assert.Error(t, (&daemon.Config{Listen: "7460"}).Validate())
}

// A database that was lost beside its bodies does not pass for a new installation.
func TestAnEmptyDatabaseBesideBodiesIsNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body, database string
		named          bool
	}{
		"an empty file":       {"blobs/default/ab/abcd", "d.db", true},
		"no file":             {"blobs/default/ab/abcd", "", true},
		"a new installation":  {"blobs/.incoming/x", "d.db", false},
		"shared with others":  {"elsewhere/blobs/default/ab/abcd", "d.db", false},
		"what a crash leaves": {"blobs/.incoming/x", "", false},
	} {
		dir := t.TempDir()
		body := filepath.Join(dir, tt.body)
		require.NoError(t, os.MkdirAll(filepath.Dir(body), 0o700))
		require.NoError(t, os.WriteFile(body, nil, 0o600))
		if tt.database != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, tt.database), nil, 0o600))
		}
		blobs, _, _ := strings.Cut(tt.body, "blobs/")
		var log bytes.Buffer
		base := daemon.NewBase(daemon.BaseConfig{
			Token: config.NewSecret("a token, long enough"), Listen: "127.0.0.1:0", Database: filepath.Join(dir, "d.db"), BlobDir: filepath.Join(dir, blobs, "blobs"),
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		var group lifecycle.Group
		group.Add(base.Parts()...)
		require.NoError(t, group.Start(t.Context()), name)
		require.NoError(t, group.Stop(t.Context(), time.Minute), name)
		if !tt.named {
			assert.Empty(t, log.String(), name)
			continue
		}
		assert.Contains(t, log.String(), "the database is empty, but there are stored bodies beside it", name)
		assert.Contains(t, log.String(), filepath.Join(dir, "d.db"), name)
	}
}
