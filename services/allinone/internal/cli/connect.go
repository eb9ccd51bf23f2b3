package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/blob/blobclient"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dirlock"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
	"github.com/evalfleet/evalfleet/services/allinone"
	"github.com/evalfleet/evalfleet/services/allinone/internal/datadir"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// session is a connection to a server, perhaps one in this process.
type session struct {
	app     *app
	address string
	conn    *grpc.ClientConn
	// here is the server in this process; nil for a client of another's.
	here *allinone.Server
	// lock holds the data directory for the server in this process.
	lock *dirlock.Lock
	log  *os.File
	// idle reports that the server in this process leaves unfinished work alone: nothing drives it, since no other
	// server has the data directory.
	idle bool
	// again is how eval run was called; nil for other commands.
	again *rerun
	// logFlags are this command's flags for the location of logs, in shell syntax.
	logFlags []string
	// warned reports that this command has shown the warnings of its evaluation.
	warned bool
	// given reports whether this command was given a flag; nil if that does not matter.
	given func(flag string) bool
	// leave is set when the user wants to be gone at once.
	leave bool

	evals     agentv1.EvalServiceClient
	runs      agentv1.RunServiceClient
	models    modelv1.ModelServiceClient
	batches   modelv1.BatchServiceClient
	cache     modelv1.CacheServiceClient
	limits    modelv1.LimitServiceClient
	tools     toolv1.ToolServiceClient
	sandboxes sandboxv1.SandboxServiceClient
	blobs     blobv1.BlobServiceClient
}

// How long a command waits for its own server to start, and at most for calls in flight when that stops: someone may
// wait for the command to end.
const (
	startTimeout = time.Minute
	stopGrace    = 4 * time.Second
)

// named is the address that --server names, else EVALFLEET_SERVER; empty is none.
func (a *app) named() string {
	if a.server != "" {
		return a.server
	}
	server, _ := a.Env("EVALFLEET_SERVER")
	return server
}

// connect finds a server: a named one, else the one that holds the data directory, else one that it starts in this
// process. Such a server takes up unfinished work only when the command brings work itself: to look at a list should
// not set anything off.
func (a *app) connect(ctx context.Context, work bool) (*session, error) {
	if server := a.named(); server != "" {
		if a.costs != "" {
			return nil, usage("--model-cost-config %s would change nothing: the server at %s has the prices of its own configuration (docs/config.md, modelgw.prices); leave the flag out", a.costs, server)
		}
		token, err := a.token(ctx)
		if err != nil {
			return nil, err
		}
		return a.dial(server, token)
	}
	cfg, err := a.loadConfig(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := datadir.Open(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, dirlock.Patience)
	defer cancel()
	for backoff := (retry.Backoff{First: 50 * time.Millisecond, Max: time.Second}); ; {
		lock, holder, err := dir.Lock().Claim(within)
		if err != nil {
			return nil, err
		}
		if lock != nil {
			return a.start(ctx, cfg, dir, lock, work)
		}
		s, err := a.join(within, holder, work)
		if rpcerr.Code(err) != codes.Unavailable {
			return s, err
		}
		if backoff.Wait(within) != nil { // It was just going.
			return nil, err
		}
	}
}

// join becomes a client of the server that holds the data directory. It fails with UNAVAILABLE when that one is gone.
// With --config or --model-cost-config it takes no work there, since that server may be configured otherwise.
func (a *app) join(ctx context.Context, holder dirlock.Holder, work bool) (*session, error) {
	token, err := a.token(ctx)
	if err != nil {
		return nil, err
	}
	s, err := a.dial(holder.Address, token)
	if err != nil {
		return nil, err
	}
	if _, err := healthv1.NewHealthClient(s.conn).Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
		return nil, errors.Join(err, s.conn.Close())
	}
	for _, set := range []struct{ flag, file, remedy string }{
		{"--config", a.config, "leave --config out (and name its folder with --data-dir)"},
		{"--model-cost-config", a.costs, "leave --model-cost-config out"},
	} {
		if set.file != "" && work {
			return nil, errors.Join(usage("%s %s would change nothing: the server at %s, process %d, runs already, as it was configured when it started; "+
				"%s, or, when its work is done, stop it with kill %d and try again", set.flag, set.file, holder.Address, holder.PID, set.remedy, holder.PID), s.conn.Close())
		}
	}
	a.holder = holder
	unused := ""
	if file, _ := a.Env("EVALFLEET_CONFIG"); a.config != "" || file != "" {
		unused = "; the configuration file of this command does not change how it was configured"
	}
	a.note("using the server at %s (process %d)%s", holder.Address, holder.PID, unused)
	return s, nil
}

// start starts a server in this process.
func (a *app) start(ctx context.Context, cfg allinone.Config, dir datadir.Dir, lock *dirlock.Lock, work bool) (*session, error) {
	log, err := dir.Log()
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	fail := func(err error) (*session, error) { return nil, errors.Join(err, lock.Release(), log.Close()) }
	server := allinone.New(cfg, allinone.Deps{Dir: dir, Lock: lock, Logger: telemetry.NewLogger(cfg.Log, log), AnyPort: true, Idle: !work})
	within, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := server.Start(within); err != nil {
		return fail(err)
	}
	s, err := a.dial(server.Address(), server.Token())
	if err != nil {
		return fail(errors.Join(err, server.Stop(context.WithoutCancel(ctx), stopGrace)))
	}
	s.here, s.lock, s.log, s.idle = server, lock, log, !work
	if work {
		a.note("started a server at %s; its log is %s", server.Address(), log.Name())
	}
	return s, nil
}

// dial makes the clients of a server.
func (a *app) dial(address string, token config.Secret) (*session, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, usage("--server %s is no address; write host:port, such as 127.0.0.1:7460", address)
	}
	waits := &waits{app: a, told: map[string]bool{}}
	bodies := &blobclient.Store{}
	conn, err := grpcclient.New(address, grpcclient.Options{Token: token, FailFast: true, Unary: waits.unary, Blobs: bodies})
	if err != nil {
		return nil, err
	}
	bodies.Client = blobv1.NewBlobServiceClient(conn)
	waits.health = healthv1.NewHealthClient(conn)
	return &session{
		app: a, address: address, conn: conn,
		evals: agentv1.NewEvalServiceClient(conn), runs: agentv1.NewRunServiceClient(conn), models: modelv1.NewModelServiceClient(conn),
		batches: modelv1.NewBatchServiceClient(conn), cache: modelv1.NewCacheServiceClient(conn), limits: modelv1.NewLimitServiceClient(conn),
		tools: toolv1.NewToolServiceClient(conn), sandboxes: sandboxv1.NewSandboxServiceClient(conn), blobs: bodies.Client,
	}, nil
}

// close ends the connection, and the server if it is in this process.
func (s *session) close(ctx context.Context) error {
	err := s.conn.Close()
	if s.here != nil {
		err = errors.Join(err, s.here.Stop(context.WithoutCancel(ctx), stopGrace), s.lock.Release(), s.log.Close())
	}
	return err
}

// look runs a command that only asks. An interrupt ends it.
func (a *app) look(ctx context.Context, f func(ctx context.Context, s *session) error) error {
	ctx, stop := a.untilInterrupt(ctx)
	defer stop()
	s, err := a.connect(ctx, false)
	if err == nil {
		err = f(ctx, s)
		if closeErr := s.close(ctx); err == nil {
			err = closeErr
		}
	}
	if interrupted(ctx) {
		return errInterrupted
	}
	return err
}

// configFile is the file of the configuration; empty is none.
func (a *app) configFile() string {
	if a.config != "" {
		return a.config
	}
	file, _ := a.Env("EVALFLEET_CONFIG")
	return file
}

// loadConfig is the configuration of a server that is started here: file, environment, flags.
func (a *app) loadConfig(ctx context.Context) (allinone.Config, error) {
	var cfg allinone.Config
	if err := config.Load(ctx, &cfg, a.configFile(), a.Env); err != nil {
		return cfg, usageError{err}
	}
	if a.costs != "" {
		prices, err := modelgw.ReadPrices(ctx, a.costs)
		if err != nil {
			return cfg, usage("--model-cost-config: %w", err)
		}
		if cfg.Modelgw.Prices == nil {
			cfg.Modelgw.Prices = map[string]modelgw.Price{}
		}
		maps.Copy(cfg.Modelgw.Prices, prices)
	}
	if a.dataDir != "" {
		cfg.DataDir = a.dataDir
	}
	if a.tokenFile != "" {
		cfg.TokenFile = a.tokenFile
	}
	if strings.HasPrefix(cfg.DataDir, "-") {
		return cfg, usage("data directory %q looks like a flag; write ./%s if a folder of that name is meant", cfg.DataDir, cfg.DataDir)
	}
	cfg.Sandboxd.AllowUnisolated = cfg.Sandboxd.AllowUnisolated || a.allowUnisolated
	if cfg.DataDir == "" {
		path, err := datadir.Default(a.Env)
		if err != nil {
			return cfg, usageError{err}
		}
		cfg.DataDir = path
	}
	return cfg, nil
}

// token is the credential of a client: --token-file, else EVALFLEET_TOKEN, else the data directory's.
func (a *app) token(ctx context.Context) (config.Secret, error) {
	cfg, err := a.loadConfig(ctx)
	if err != nil {
		return config.Secret{}, err
	}
	if a.tokenFile == "" && !cfg.Token.IsZero() {
		return cfg.Token, nil
	}
	path := cfg.TokenFile
	if path == "" {
		path = filepath.Join(cfg.DataDir, "token")
	}
	token, err := auth.ReadToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		return token, statusError{exitUnreachable, fmt.Sprintf("no token: there is no file %s; name the server's with --token-file, or set EVALFLEET_TOKEN", path)}
	}
	if err != nil {
		return token, statusError{exitUnreachable, err.Error()}
	}
	return token, nil
}
