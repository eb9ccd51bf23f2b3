package allinone_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dirlock"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/allinone"
	"github.com/evalfleet/evalfleet/services/allinone/internal/datadir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const grace = 10 * time.Second

// folder is a data directory that this process locks until the test ends.
func folder(t *testing.T, path string) (datadir.Dir, *dirlock.Lock) {
	t.Helper()
	dir, err := datadir.Open(path)
	require.NoError(t, err)
	lock, _, err := dir.Lock().Claim(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lock.Release()) })
	return dir, lock
}

func configured(t *testing.T, listen string) allinone.Config {
	t.Helper()
	cfg, err := load(t, "", map[string]string{"EVALFLEET_LISTEN": listen})
	require.NoError(t, err)
	return cfg
}

// start starts a server; the returned function stops it.
func start(t *testing.T, cfg allinone.Config, deps allinone.Deps) (*allinone.Server, func()) {
	t.Helper()
	deps.Logger = slog.New(slog.DiscardHandler)
	s := allinone.New(cfg, deps)
	require.NoError(t, s.Start(t.Context()))
	return s, func() { assert.NoError(t, s.Stop(context.WithoutCancel(t.Context()), grace)) }
}

func evals(t *testing.T, address string, token config.Secret) (agentv1.EvalServiceClient, agentv1.RunServiceClient) {
	t.Helper()
	conn, err := grpcclient.New(address, grpcclient.Options{Token: token, FailFast: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return agentv1.NewEvalServiceClient(conn), agentv1.NewRunServiceClient(conn)
}

func TestAServerStartsServesAndStops(t *testing.T) {
	dir, lock := folder(t, t.TempDir())
	s, stop := start(t, configured(t, "127.0.0.1:0"), allinone.Deps{Dir: dir, Lock: lock})
	defer stop()
	_, holder, err := dir.Lock().Claim(t.Context())
	require.NoError(t, err)
	assert.Equal(t, s.Address(), holder.Address, "the lock names the address")

	_, runs := evals(t, s.Address(), s.Token())
	run, err := runs.CreateRun(t.Context(), &agentv1.CreateRunRequest{Parent: "projects/default", Spec: &agentv1.RunSpec{
		Input: []*modelv1.ChatMessage{chat.User("hello")}, Steps: []*agentv1.AgentRef{{Name: "generate"}}, Model: &agentv1.ModelRef{Model: "mockllm/model"},
	}})
	require.NoError(t, err)
	stream, err := runs.WatchRun(waittest.Context(t), &agentv1.WatchRunRequest{Name: run.GetName()})
	require.NoError(t, err)
	for err == nil {
		_, err = stream.Recv()
	}
	run, err = runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: run.GetName()})
	require.NoError(t, err)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, run.GetState())

	other, _ := evals(t, s.Address(), config.NewSecret("wrong"))
	_, err = other.ListEvals(t.Context(), &agentv1.ListEvalsRequest{Parent: "projects/default"})
	assert.Equal(t, codes.Unauthenticated, rpcerr.Code(err))
}

func TestTheTokenStaysFromStartToStart(t *testing.T) {
	path := t.TempDir()
	dir, lock := folder(t, path)
	first, stop := start(t, configured(t, "127.0.0.1:0"), allinone.Deps{Dir: dir, Lock: lock})
	stop()
	second, stop := start(t, configured(t, "127.0.0.1:0"), allinone.Deps{Dir: dir, Lock: lock})
	stop()
	assert.Equal(t, first.Token().Reveal(), second.Token().Reveal())
	cfg := configured(t, "127.0.0.1:0")
	cfg.Token = config.NewSecret("given, and long enough")
	third, stop := start(t, cfg, allinone.Deps{Dir: dir, Lock: lock})
	stop()
	assert.Equal(t, "given, and long enough", third.Token().Reveal())
}

func TestAPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	dir, lock := folder(t, t.TempDir())
	cfg := configured(t, taken.Addr().String())
	s := allinone.New(cfg, allinone.Deps{Dir: dir, Lock: lock, Logger: slog.New(slog.DiscardHandler)})
	err = s.Start(t.Context())
	assert.EqualError(t, err, "start address: "+taken.Addr().String()+
		" is in use; stop what listens there, or choose another address with --listen, such as 127.0.0.1:0 for any free port")

	fallen, stop := start(t, cfg, allinone.Deps{Dir: dir, Lock: lock, AnyPort: true})
	defer stop()
	assert.NotEqual(t, taken.Addr().String(), fallen.Address(), "one that serves its own process takes any port")
}

func TestAnIdleServerIsNotAnnounced(t *testing.T) {
	dir, lock := folder(t, t.TempDir())
	s, stop := start(t, configured(t, "127.0.0.1:7460"), allinone.Deps{Dir: dir, Lock: lock, Idle: true})
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, _, err := dir.Lock().Claim(ctx)
	assert.ErrorContains(t, err, "takes no clients")
	c, _ := evals(t, s.Address(), s.Token())
	_, err = c.ListEvals(t.Context(), &agentv1.ListEvalsRequest{Parent: "projects/default"})
	assert.NoError(t, err)
}

// A server that cannot start leaves nothing behind: the same folder works once the fault is gone.
func TestAStartThatFailsStopsWhatItStarted(t *testing.T) {
	dir, lock := folder(t, t.TempDir())
	cfg := configured(t, "127.0.0.1:0")
	cfg.Modelgw.Mockllm.CallLog = filepath.Join(t.TempDir(), "no", "such", "folder")
	s := allinone.New(cfg, allinone.Deps{Dir: dir, Lock: lock, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, s.Start(t.Context()), "start modelgw: ")
	_, stop := start(t, configured(t, "127.0.0.1:0"), allinone.Deps{Dir: dir, Lock: lock})
	stop()
}
