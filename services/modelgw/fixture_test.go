package modelgw_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/auth/authtest"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/inprocess"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

func TestMain(m *testing.M) {
	// A client of Redis that was closed in an outage sleeps for up to a second before it notices.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")) // a package below genai begins it
}

const project = "projects/default"

// gateway is a running gateway and its clients.
type gateway struct {
	models  modelv1.ModelServiceClient
	caches  modelv1.CacheServiceClient
	batches modelv1.BatchServiceClient
	limits  modelv1.LimitServiceClient
	web     http.Handler
	log     string
	service *modelgw.Service
	// stop ends the service's Run, and close all.
	stop, close func()
}

// setup changes what a gateway is made of.
type setup func(*modelgw.Config, *modelgw.Deps)

func withLedger(ledger effect.Ledger, owner string) setup {
	return func(_ *modelgw.Config, d *modelgw.Deps) { d.Ledger, d.Owner = ledger, owner }
}

// tokens know the callers of the endpoints.
var tokens = auth.NewTokens("", map[string]config.Secret{auth.Operator: config.NewSecret("right"), "run:r1": config.NewSecret("of-a-run")})

// start runs a gateway over an in-memory connection until the test ends, or close is called.
func start(t testing.TB, changes ...setup) *gateway {
	t.Helper()
	g := &gateway{log: filepath.Join(t.TempDir(), "calls.jsonl")}
	logger := slog.New(slog.DiscardHandler)
	var cfg modelgw.Config
	cfg.SetDefaults()
	cfg.Endpoints.SetDefaults()
	cfg.Mockllm.CallLog = g.log
	deps := modelgw.Deps{Ledger: &memory.Ledger{}, Owner: "one", Auth: tokens, Logger: logger}
	for _, change := range changes {
		change(&cfg, &deps)
	}
	service, err := modelgw.New(cfg, deps)
	require.NoError(t, err)
	server, err := grpcserver.New(grpcserver.Options{Logger: logger, Auth: authtest.Allow{Name: "tester"}})
	require.NoError(t, err)
	service.Register(server)
	life, end := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = service.Run(life)
	}()
	g.web, g.service, g.stop = service.Handler(), service, end
	listener := inprocess.Listen()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	conn, err := grpcclient.Within(listener, grpcclient.Options{Token: config.NewSecret("any")})
	require.NoError(t, err)
	g.connect(conn)
	closed := false
	g.close = func() {
		if closed {
			return
		}
		closed = true
		_ = conn.Close()
		server.Stop()
		waittest.For(t, served, "the server to end")
		end()
		waittest.For(t, ran, "the service to end")
		_ = service.Close(ended())
	}
	t.Cleanup(g.close)
	return g
}

// ended is a context that has ended.
func ended() context.Context {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return now
}

func (g *gateway) connect(conn grpc.ClientConnInterface) {
	g.models = modelv1.NewModelServiceClient(conn)
	g.caches = modelv1.NewCacheServiceClient(conn)
	g.batches = modelv1.NewBatchServiceClient(conn)
	g.limits = modelv1.NewLimitServiceClient(conn)
}

// logged is one line of the scripted model's log of calls.
type logged struct {
	Project   string `json:"project"`
	Sample    string `json:"sample"`
	Turn      int    `json:"turn"`
	RequestID string `json:"request_id"`
	Attempt   int    `json:"attempt"`
	Reissued  bool   `json:"reissued"`
}

// calls returns the calls that reached the scripted model.
func (g *gateway) calls(t testing.TB) []logged {
	t.Helper()
	file, err := os.Open(g.log)
	require.NoError(t, err)
	defer file.Close()
	var all []logged
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var line logged
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
		all = append(all, line)
	}
	return all
}

// ask is a request to the scripted model; script is its model arguments.
func ask(script, question string) *modelv1.GenerateRequest {
	return &modelv1.GenerateRequest{
		Parent: project, Model: "mockllm/model", ModelArgsJson: script,
		Messages: []*modelv1.ChatMessage{chat.User(question)},
	}
}

func keyed(id string, r *modelv1.GenerateRequest) *modelv1.GenerateRequest {
	r.RequestId = id
	return r
}

func on(sample string, turn int32, r *modelv1.GenerateRequest) *modelv1.GenerateRequest {
	r.Attribution = &effectv1.Attribution{Sample: sample, Epoch: 1, Turn: turn, Run: project + "/runs/r"}
	return r
}

// receive reads a stream to its end.
func receive(t testing.TB, stream grpc.ServerStreamingClient[modelv1.StreamGenerateResponse]) ([]*modelv1.StreamGenerateResponse, error) {
	t.Helper()
	var events []*modelv1.StreamGenerateResponse
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, event)
	}
}

// said is the text of the pieces since the last restart.
func said(events []*modelv1.StreamGenerateResponse) string {
	text := ""
	for _, event := range events {
		if event.GetRestart() != nil {
			text = ""
		}
		text += event.GetDelta().GetText()
	}
	return text
}
