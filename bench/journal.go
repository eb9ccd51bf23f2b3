package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/evalfleet/evalfleet/bench/internal/gotest"
	"github.com/evalfleet/evalfleet/bench/internal/load"
	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/rawlog"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
)

const (
	// appenders is how many runs append at once.
	appenders = 256
	// appendBytes is the size of an append.
	appendBytes = 2048
)

func journalBenchmark() benchmark {
	return benchmark{
		name:  "journal",
		title: "Journal appends",
		how: "256 callers append 2 KiB each, strictly one after another, and go on when it is on disk. The journal appends three events to one of 256 journals, with heads, owners and " +
			"projections kept in the same transaction; SQLite inserts one row into a table with one index; the raw log writes the bytes to the end of a file. All three sync once for all that wait.",
		run: runJournal,
	}
}

func runJournal(ctx context.Context, e *env) (figures []report.Figure, err error) {
	journals, err := gotest.Build(ctx, e.root, "./services/agentorch/internal/journal/sqlite", e.dir, "TMPDIR="+e.dir)
	if err != nil {
		return nil, err
	}
	rows, closeRows, err := sqliteAppends(ctx, filepath.Join(e.dir, "rows.db"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeRows()) }()
	raw, err := rawlog.Create(filepath.Join(e.dir, "raw.log"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	body := make([]byte, appendBytes)
	table, err := e.measure(ctx, 5,
		journals.Metric("^BenchmarkAppend$", "appends/s"),
		rows,
		load.Rate(appenders, func(context.Context, int, int) error { return raw.Append(body) }),
	)
	if err != nil {
		return nil, err
	}
	return []report.Figure{
		{
			Name: "journal appends", Baseline: "raw log", Measured: table.Median(0), BaselineMeasured: table.Median(2), Unit: "/s", Ratio: table.Ratio(0, 2, 1),
			Means: "How many durable steps of runs a machine can journal in a second, and how far that is from what its disk could take at all.",
		},
		{
			Name: "SQLite appends", Baseline: "raw log", Measured: table.Median(1), BaselineMeasured: table.Median(2), Unit: "/s", Ratio: table.Ratio(1, 2, 1),
			Means: "What the database below the journal makes of the same load: the difference to the journal is what its order, fences and projections cost.",
		},
	}, nil
}

// sqliteAppends is a sampler of durable inserts of one row a second, into a database at path.
func sqliteAppends(ctx context.Context, path string) (paired.Sampler, func() error, error) {
	db, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return nil, nil, err
	}
	err = db.Migrate(ctx, "bench", []string{`CREATE TABLE events (off INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (run, seq))`})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	body := make([]byte, appendBytes)
	next := make([]int, appenders) // Each is one caller's alone.
	return load.Rate(appenders, func(ctx context.Context, caller, _ int) error {
		next[caller]++
		return db.Write(ctx, func(tx *sqlite.Tx) error {
			_, err := tx.Exec("INSERT INTO events (run, seq, body) VALUES (?, ?, ?)", caller, next[caller], body)
			return err
		})
	}), db.Close, nil
}
