package main

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"

	"github.com/evalfleet/evalfleet/bench/internal/load"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/effect"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
)

func ledgerBenchmark() benchmark {
	return benchmark{
		name:  "ledger",
		title: "Effects kept in the ledger",
		how: "256 callers let keyed effects happen that give 2 KiB, strictly one after another: claim on disk, work on a goroutine of its own, result on disk, release. A release is a write " +
			"too, so the bound is a third of what SQLite appends. Effects in the process do nothing; model calls are those of mockllm, asked of modelgw in a process of its own over gRPC.",
		run: runLedger,
	}
}

// ledgerWrites is how many durable writes an effect is: claim, result, release.
const ledgerWrites = 3

func runLedger(ctx context.Context, e *env) (figures []report.Figure, err error) {
	db, err := sqlite.Open(ctx, filepath.Join(e.dir, "ledger.db"), sqlite.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ledger, err := effectsqlite.New(ctx, db, "bench")
	if err != nil {
		return nil, err
	}
	runner, err := effect.New(effect.Config{Ledger: ledger, Owner: "bench"})
	if err != nil {
		return nil, err
	}
	rows, closeRows, err := sqliteAppends(ctx, filepath.Join(e.dir, "rows.db"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeRows()) }()

	calls, stopCalls, err := modelCalls(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopCalls()) }()

	body := make([]byte, appendBytes)
	key := keys()
	table, err := e.measure(ctx, 5, load.Rate(appenders, func(ctx context.Context, caller, _ int) error {
		k := effect.Key{Project: "default", ID: key(caller)}
		_, err := runner.Do(ctx, effect.Request{Key: k}, func(context.Context, effect.Attempt) ([]byte, error) { return body, nil })
		return errors.Join(err, ledger.Release(ctx, k))
	}), rows, load.Rate(appenders, calls))
	if err != nil {
		return nil, err
	}
	return []report.Figure{
		{
			Name: "effects", Baseline: "a third of SQLite's appends", Measured: table.Median(0), BaselineMeasured: table.Median(1) / ledgerWrites, Unit: "/s", Ratio: table.Ratio(0, 1, 1.0/ledgerWrites),
			Means: "How many calls of models and tools in a second can be made so that a crash neither loses nor repeats one.",
		},
		{
			Name: "model calls with a key", Baseline: "effects", Measured: table.Median(2), BaselineMeasured: table.Median(0), Unit: "/s", Ratio: table.Ratio(2, 0, 1),
			Means: "How many answers of a model that costs no time modelgw gives in a second, and what its pipeline and two gRPC calls take from the ledger's rate.",
		},
	}, nil
}

// keys returns a function that returns unique keys for each caller.
func keys() func(caller int) string {
	next := make([]int, appenders) // Each is one caller's alone.
	return func(caller int) string {
		next[caller]++
		return "run-" + strconv.Itoa(caller) + "/" + strconv.Itoa(next[caller])
	}
}

// modelCalls starts modelgw. A call asks it for 2 KiB under a key, and releases the key.
func modelCalls(ctx context.Context, e *env) (call load.Call, stop func() error, err error) {
	var started cleanup
	defer func() {
		if err != nil {
			err = errors.Join(err, started.all())
		}
	}()
	s, err := e.scripted(appendBytes)
	if err != nil {
		return nil, nil, err
	}
	server, err := e.serve(ctx, "modelgw", "modelgw", s)
	if err != nil {
		return nil, nil, err
	}
	started.add(server.Stop)
	conn, err := e.dial(server.Address)
	if err != nil {
		return nil, nil, err
	}
	started.add(conn.Close)
	models, key := modelv1.NewModelServiceClient(conn), keys()
	return func(ctx context.Context, caller, _ int) error {
		r := request(appendBytes, appenders)
		r.RequestId, r.Messages = key(caller), []*modelv1.ChatMessage{chat.User("Go on.")}
		if _, err := models.Generate(ctx, r); err != nil {
			return err
		}
		_, err := models.ReleaseGenerate(ctx, &modelv1.ReleaseGenerateRequest{Parent: r.GetParent(), RequestIds: []string{r.GetRequestId()}})
		return err
	}, started.all, nil
}
