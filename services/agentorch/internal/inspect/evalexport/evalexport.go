// Package evalexport makes logs of evaluations, in the form of package evallog, from their journals and those of their
// runs.
//
// A log holds finished samples: an active evaluation can be exported at any time. Only the journals are stored, so an
// export of the same events gives the same bytes. Runs are read one after another; one sample is in memory at a time.
package evalexport

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Format is a form of logs.
type Format string

// The forms. The zero value is Archive.
const (
	Archive  Format = "eval"
	Document Format = "json"
)

// Deps are the dependencies of exports.
type Deps struct {
	Journals journal.Journals
	Blobs    eval.Blobs
	Judges   eval.Judges
	// Samples reads the samples of an evaluation.
	Samples func(context.Context, *eval.State) (*eval.Samples, error)
}

// Exporter makes logs. It is safe for concurrent use.
type Exporter struct{ deps Deps }

// New returns an exporter.
func New(deps Deps) *Exporter { return &Exporter{deps: deps} }

// Log is a log that is ready to be written, with the state of the evaluation at the time of Open.
type Log struct {
	// FileName is the name under which readers expect it.
	FileName string
	// Total is the number of samples in it.
	Total int

	exporter *Exporter
	format   Format
	project  string
	ledger   *ledger
	header   *evallog.Header
	samples  *eval.Samples
	slots    []*eval.Slot
	warned   bool // a sample that was written has the warnings
	outcome  eval.Outcome
}

// Open reads an evaluation. Model is the index of the log's model in the specification, from 1; 0 is the only model. It
// fails with NOT_FOUND if there is no such evaluation, and with INVALID_REQUEST for an unknown format or model.
func (x *Exporter) Open(ctx context.Context, project, name string, format Format, model int) (*Log, error) {
	if format == "" {
		format = Archive
	}
	if format != Archive && format != Document {
		return nil, rpcerr.InvalidField("format", "%q is no form of logs; write %s or %s", format, Archive, Document)
	}
	head, err := x.deps.Journals.Open(ctx, name)
	if err != nil {
		return nil, journal.Gone(err, name)
	}
	ledger := newLedger()
	for event, err := range journal.All(ctx, x.deps.Journals, head.Ref, 0) {
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, journal.Gone(err, name))
		}
		ledger.apply(event)
	}
	if model, err = chosen(ledger.state.Eval.GetSpec(), model); err != nil {
		return nil, err
	}
	l := &Log{exporter: x, format: format, project: project, ledger: ledger}
	if l.samples, err = x.deps.Samples(ctx, ledger.state); err != nil {
		return nil, err
	}
	if l.outcome, err = x.deps.Judges.Outcome(ctx, ledger.state, l.samples, model); err != nil {
		return nil, fmt.Errorf("results of %s: %w", name, err)
	}
	for i := range ledger.state.Slots {
		if slot := &ledger.state.Slots[i]; slot.Model == model && slot.Finished != nil {
			l.slots = append(l.slots, slot)
		}
	}
	keys := make([]string, l.samples.Len())
	for i, sample := range l.samples.All() {
		keys[i] = sortKey(sample)
	}
	slices.SortStableFunc(l.slots, func(a, b *eval.Slot) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), strings.Compare(keys[a.Sample], keys[b.Sample]))
	})
	l.Total = len(l.slots)
	driver, err := l.driver(ctx, model)
	if err != nil {
		return nil, fmt.Errorf("sandboxes of %s: %w", name, err)
	}
	l.header = l.makeHeader(model, driver)
	l.FileName = evallog.FileName(&l.header.Eval, string(format))
	return l, nil
}

// sortKey orders samples as readers do: numbers by value, and before most texts.
func sortKey(sample *agentv1.Sample) string {
	if sample.GetIntegerId() {
		return fmt.Sprintf("%020s", sample.GetId())
	}
	return sample.GetId()
}

// chosen returns the place of the log's model from 0.
func chosen(spec *agentv1.EvalSpec, model int) (int, error) {
	models := spec.GetModels()
	if model >= 1 && model <= len(models) || model == 0 && len(models) == 1 {
		return max(0, model-1), nil
	}
	var known []string
	for i, m := range models {
		known = append(known, fmt.Sprintf("%d %s", i+1, m.GetModel()))
	}
	return 0, rpcerr.InvalidField("model", "a log is about one model; name it by its place: %s", strings.Join(known, ", "))
}

// Write writes the log. Done is called after each sample with the number of written samples.
func (l *Log) Write(ctx context.Context, w io.Writer, done func(samples int)) error {
	begin := evallog.NewArchive
	if l.format == Document {
		begin = evallog.NewDocument
	}
	log, err := begin(w, l.header)
	if err != nil {
		return err
	}
	l.warned = false
	for i, slot := range l.slots {
		sample, err := l.makeSample(ctx, slot)
		if err != nil {
			return err
		}
		if err := log.Sample(sample); err != nil {
			return err
		}
		done(i + 1)
	}
	return log.Close(l.reductions())
}
