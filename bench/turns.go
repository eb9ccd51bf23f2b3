package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/process"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// place is where in a run its steps are measured: so many turns around one.
type place struct{ turn, around int }

// end is the last turn that counts.
func (p place) end() int { return p.turn + p.around/2 }

// places are those of the report. The first two are measured in runs of their own, again and again, since their steps
// are few.
var places = []place{{10, 10}, {100, 50}, {1000, 200}, {3000, 200}}

const (
	// shortRuns is how many runs measure the first two places in each round.
	shortRuns = 10
	// look is how often the processor time is noted.
	look = time.Millisecond
)

func turnsBenchmark() benchmark {
	return benchmark{
		name:  "turns",
		title: "A step of a long run",
		how: "One run at a time of the single binary, in a process of its own, with steps as above: each asks mockllm with all of its conversation, which grows by 2 KiB a turn. " +
			"The times of the journal's events say how long a step took, at the median of the turns around the one that is named; the processor time of the whole process over the " +
			"same turns is a step's share of it. What counts is how that compares with turn 10.",
		run: runTurns,
	}
}

func runTurns(ctx context.Context, e *env) (figures []report.Figure, err error) {
	var stop cleanup
	defer func() { err = errors.Join(err, stop.all()) }()
	s, err := e.scripted(appendBytes)
	if err != nil {
		return nil, err
	}
	server, err := e.serve(ctx, "all", "", s)
	if err != nil {
		return nil, err
	}
	stop.add(server.Stop)
	conn, err := e.dial(server.Address)
	if err != nil {
		return nil, err
	}
	stop.add(conn.Close)
	l := &longRuns{server: server, batches: &batches{client: agentv1.NewRunServiceClient(conn), runs: 1}, places: places, short: shortRuns}
	if e.budget < time.Second {
		l.places, l.short = []place{{3, 2}, {5, 2}, {7, 2}, {9, 2}}, 1 // A rehearsal.
	}
	// Rounds of one run each; what a round takes does not depend on the budget.
	var wall, cpu paired.Table
	for begin := time.Now(); len(wall) == 0 || len(wall) < 3 && time.Since(begin) < 2*e.budget; {
		w, c, err := l.round(ctx)
		if err != nil {
			return nil, err
		}
		wall, cpu = append(wall, w), append(cpu, c)
	}
	for i, p := range l.places[1:] {
		figures = append(figures, figure("a step", p, l.places[0], "µs", wall, i+1), figure("processor time of a step", p, l.places[0], "µs CPU", cpu, i+1))
	}
	return figures, nil
}

// figure compares a place with the first.
func figure(what string, at, first place, unit string, table paired.Table, column int) report.Figure {
	f := report.Figure{
		Name: fmt.Sprintf("%s at turn %d", what, at.turn), Measured: table.Median(column), Unit: unit,
		Baseline: fmt.Sprintf("at turn %d", first.turn), BaselineMeasured: table.Median(0), Ratio: table.Ratio(column, 0, 1),
		Means: fmt.Sprintf("What a turn costs when %d went before it.", at.turn-1),
	}
	switch at.turn {
	case 1000:
		f.Goals = []report.Goal{report.AtMost(f.Ratio, 1.2)}
	case 3000:
		f.Goals = []report.Goal{report.AtMost(f.Ratio, 1.3)}
	}
	return f
}

// longRuns measures steps at places of runs.
type longRuns struct {
	server  *process.Child
	batches *batches
	places  []place
	short   int
}

// round returns the microseconds of a step at each place, by the clock and of the processor.
func (l *longRuns) round(ctx context.Context) (wall, cpu []float64, err error) {
	var walls, cpus [2][]float64
	for range l.short {
		w, c, err := l.run(ctx, l.places[:2])
		if err != nil {
			return nil, nil, err
		}
		for i := range w {
			walls[i], cpus[i] = append(walls[i], w[i]), append(cpus[i], c[i])
		}
	}
	wall, cpu, err = l.run(ctx, l.places[2:])
	if err != nil {
		return nil, nil, err
	}
	both := func(short [2][]float64, long []float64) []float64 {
		return append([]float64{paired.Quantile(short[0], 0.5), paired.Quantile(short[1], 0.5)}, long...)
	}
	return both(walls, wall), both(cpus, cpu), nil
}

// spent is the processor time that the server had used at a moment.
type spent struct {
	at  time.Time
	cpu time.Duration
}

// run lets a run take place and measures its steps at places, of which the last is near its end.
func (l *longRuns) run(ctx context.Context, at []place) (wall, cpu []float64, err error) {
	turns := at[len(at)-1].end() + 1
	l.batches.turns = turns
	ended := make(chan error, 1)
	go func() {
		_, err := l.batches.batch(ctx)
		ended <- err
	}()
	var used []spent
	tick := time.NewTicker(look)
	defer tick.Stop()
	for over := false; !over; {
		now, err := l.server.CPU()
		if err != nil {
			return nil, nil, err
		}
		used = append(used, spent{time.Now(), now})
		select {
		case err = <-ended:
			if over = true; err != nil {
				return nil, nil, err
			}
		case <-tick.C:
		}
	}
	began, err := l.turns(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range at {
		from := p.turn - p.around/2
		if p.end() >= len(began) {
			return nil, nil, fmt.Errorf("the journal has %d turns, and %d are to be measured", len(began), p.end())
		}
		steps := make([]float64, 0, p.around)
		for i := from; i < p.end(); i++ {
			steps = append(steps, float64(began[i+1].Sub(began[i]).Nanoseconds())/1000)
		}
		wall = append(wall, paired.Quantile(steps, 0.5))
		cpu = append(cpu, float64((cpuAt(used, began[p.end()])-cpuAt(used, began[from])).Nanoseconds())/1000/float64(p.end()-from))
	}
	return wall, cpu, nil
}

// turns returns when each turn of the last run began, from the first on.
func (l *longRuns) turns(ctx context.Context) ([]time.Time, error) {
	all, err := l.batches.client.ListRuns(ctx, &agentv1.ListRunsRequest{Parent: "projects/default", Labels: l.batches.labels()})
	if err != nil {
		return nil, err
	}
	var began []time.Time
	for last := int64(0); ; {
		page, err := l.batches.client.ListRunEvents(ctx, &agentv1.ListRunEventsRequest{Parent: all.GetRuns()[0].GetName(), PageSize: 1000, AfterSeq: last})
		if err != nil || len(page.GetEvents()) == 0 {
			return began, err
		}
		for _, e := range page.GetEvents() {
			last = e.GetSeq()
			if e.GetModelIntent() != nil {
				began = append(began, e.GetTime().AsTime())
			}
		}
	}
}

// cpuAt is the processor time that had been used at a moment, between the two nearest looks.
func cpuAt(used []spent, at time.Time) time.Duration {
	i := sort.Search(len(used), func(i int) bool { return !used[i].at.Before(at) })
	switch i {
	case 0:
		return used[0].cpu
	case len(used):
		return used[i-1].cpu
	}
	a, b := used[i-1], used[i]
	share := float64(at.Sub(a.at)) / float64(b.at.Sub(a.at))
	return a.cpu + time.Duration(share*float64(b.cpu-a.cpu))
}
