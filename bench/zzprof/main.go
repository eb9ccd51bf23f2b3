package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/grpcserver"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("/work/main/bin", "zz")
	must(err)
	defer os.RemoveAll(dir)
	db, err := sqlite.Open(ctx, dir+"/x.db", sqlite.Options{})
	must(err)
	ledger, err := effectsqlite.New(ctx, db, "modelgw_effects")
	must(err)
	script := dir + "/s"
	body := make([]byte, 2048)
	for i := range body {
		body[i] = 'a'
	}
	os.WriteFile(script, []byte(`{"default":"`+string(body)+`"}`), 0o600)
	var cfg modelgw.Config
	cfg.SetDefaults()
	cfg.Mockllm.Scripts = map[string]string{"s": script}
	log := slog.New(slog.DiscardHandler)
	svc, err := modelgw.New(cfg, modelgw.Deps{Ledger: ledger, Owner: "x", Logger: log})
	must(err)
	tokens := auth.NewTokens("", map[string]config.Secret{"a": config.NewSecret("t")})
	serve := func(reg func(grpc.ServiceRegistrar)) *grpc.ClientConn {
		srv, err := grpcserver.New(grpcserver.Options{Logger: log, Auth: tokens})
		must(err)
		reg(srv)
		l := grpcserver.ListenMemory()
		go srv.Serve(l)
		conn, err := grpcclient.New("m", grpcclient.Options{Token: config.NewSecret("t"), Dial: l.Dial})
		must(err)
		return conn
	}
	models := serve(svc.Register)
	blobs, err := disk.Open(disk.Config{Dir: dir + "/blobs"})
	must(err)
	var acfg agentorch.Config
	acfg.SetDefaults()
	orch, err := agentorch.New(ctx, acfg, agentorch.Deps{Models: models, Tools: models, Sandboxes: models, DB: db, Blobs: blobs, Logger: log, Replica: "local"})
	must(err)
	conn := serve(orch.Register)
	runCtx, stopRun := context.WithCancel(ctx)
	go orch.Run(runCtx)
	defer stopRun()
	runs := agentv1.NewRunServiceClient(conn)
	turns, _ := strconv.Atoi(os.Args[1])
	batches, _ := strconv.Atoi(os.Args[2])
	batch := func(name string) int {
		labels := map[string]string{"b": name}
		var wg sync.WaitGroup
		for range 256 {
			wg.Go(func() {
				_, err := runs.CreateRun(ctx, &agentv1.CreateRunRequest{Parent: "projects/default", Spec: &agentv1.RunSpec{
					Input:  []*modelv1.ChatMessage{chat.User("Go on.")},
					Steps:  []*agentv1.AgentRef{{Name: "react", ParamsJson: `{"prompt": null, "on_continue": "Go on."}`}},
					Model:  &agentv1.ModelRef{Model: "mockllm/model", ModelArgsJson: `{"script":"s"}`},
					Config: &modelv1.GenerateConfig{MaxConnections: new(int32(256))},
					Limits: &agentv1.RunLimits{Turns: new(int32(turns))}, Labels: labels}})
				must(err)
			})
		}
		wg.Wait()
		for {
			all, err := runs.ListRuns(ctx, &agentv1.ListRunsRequest{Parent: "projects/default", Labels: labels, PageSize: 1, States: []agentv1.RunState{1, 2, 3, 4}})
			must(err)
			if len(all.GetRuns()) == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return 256 * (turns + 1)
	}
	batch("warm")
	cpu := func() time.Duration {
		var u syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	f, _ := os.Create("/tmp/cpu.prof")
	pprof.StartCPUProfile(f)
	before, c0, begin, steps := db.Stats(), cpu(), time.Now(), 0
	for i := range batches {
		steps += batch(strconv.Itoa(i))
	}
	took, c1, st := time.Since(begin), cpu(), db.Stats()
	pprof.StopCPUProfile()
	f.Close()
	runtime.GC()
	m, _ := os.Create("/tmp/mem.prof")
	pprof.Lookup("allocs").WriteTo(m, 0)
	m.Close()
	fmt.Printf("%.0f steps/s, %.0f µs CPU/step, %.2f writes/step, %.1f writes/commit\n", float64(steps)/took.Seconds(), float64((c1-c0).Microseconds())/float64(steps),
		float64(st.Writes-before.Writes)/float64(steps), float64(st.Writes-before.Writes)/float64(st.Commits-before.Commits))
}
