// Package workers calls workers for work other than tools: to score, and to decide how an agent continues.
//
// A call is an effect of a run, like a model call: its intent is in the run's journal, its claim and its result are in
// a
// ledger of this service. The worker is notified once its result is durable. The offer's properties that the run or
// evaluation needs are pinned when it is created ([Workers.Pin]), so that a call can wait for a disconnected worker.
package workers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/jsonschema"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/worker"
)

// maxReissues bounds how often a call is repeated because the process that made it died. The worker's offer decides
// whether a worker may receive a call twice.
const maxReissues = 16

// Config makes [Workers].
type Config struct {
	// Worker sets how long workers may be silent or disconnected.
	Worker worker.Config
	// Ledger stores claims and results; it serves these calls alone.
	Ledger effect.Ledger
	// Owner names this process in the ledger, from its start to its end.
	Owner string
	// Alive reports whether another owner in the ledger still runs; nil if the ledger belongs to this process alone.
	Alive func(ctx context.Context, owner string) (bool, error)
	// Taken reports that a scorer's name is one of the platform's own.
	Taken func(scorer string) bool
	// Logger logs. Of unusable payloads it logs the beginning and the end.
	Logger *slog.Logger
}

// Workers is the host of workers that are no tools. Its methods are safe for concurrent use.
type Workers struct {
	host    *worker.Host
	effects *effectrpc.Owner
}

// New makes it. Run keeps its ledger small, Close ends it.
func New(cfg Config) (*Workers, error) {
	effects, err := effectrpc.New(effectrpc.Config{
		Service: "agentorch", Ledger: cfg.Ledger, Owner: cfg.Owner, Alive: cfg.Alive, MaxReissues: maxReissues, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	host := worker.New(cfg.Worker, worker.Deps{Kinds: kinds(cfg.Taken), Ledger: cfg.Ledger, Logger: cfg.Logger})
	return &Workers{host: host, effects: effects}, nil
}

// Register offers WorkerService at a server.
func (w *Workers) Register(registrar grpc.ServiceRegistrar) { w.host.Register(registrar) }

// Served returns the functions that connected workers serve, as they change.
func (w *Workers) Served() *lastvalue.Map[worker.Offered, struct{}] { return w.host.Served() }

// Run deletes old results until ctx ends. It then disconnects the workers.
func (w *Workers) Run(ctx context.Context) {
	defer w.host.Close()
	w.effects.Sweep(ctx)
}

// Close releases what remains after Run. Calls that workers hold stay open for the next process.
func (w *Workers) Close(ctx context.Context) error {
	w.host.Close()
	return w.effects.Drain(ctx)
}

// Pin returns the offer of a project's workers under a name, as a run or evaluation pins it. Params, a JSON object or
// empty, must conform to the offer. It fails with SCORER_NOT_FOUND or WORKER_NOT_CONNECTED if no worker has such an
// offer, and with INVALID_REQUEST for invalid parameters.
func (w *Workers) Pin(project, kind, name, params string) (*agentv1.WorkerRef, error) {
	offer := w.host.Find(project, kind, name)
	if offer == nil {
		return nil, rpcerr.WorkerNotConnected(kind, name, "no worker that serves %s %q is connected; start one", kind, name)
	}
	if schema := offer.GetParametersJson(); schema != "" {
		if err := checkParams(schema, params); err != nil {
			return nil, rpcerr.InvalidField("params_json", "parameters of %s, which a worker serves: %v", name, err)
		}
	}
	return &agentv1.WorkerRef{Kind: kind, Name: name, OnUnknown: worker.OnUnknown(offer), StoreKeys: offer.GetStoreKeys(), Timeout: offer.GetTimeout()}, nil
}

func checkParams(schema, params string) error {
	compiled, err := jsonschema.Compile(json.RawMessage(schema))
	if err != nil {
		return err
	}
	if params == "" {
		params = "{}"
	}
	violations, err := compiled.Check(json.RawMessage(params))
	if err != nil {
		return err
	}
	var faults []error
	for _, v := range violations {
		faults = append(faults, errors.New(v.String()))
	}
	return errors.Join(faults...)
}

// Request is one call.
type Request struct {
	// Project is the project's id, Key the effect's key.
	Project, Key string
	// Epoch is the run's owner epoch; 0 if there is none.
	Epoch int64
	// Worker is who is asked, as it was pinned.
	Worker *agentv1.WorkerRef
	// Payload is the request: the message of the kind.
	Payload proto.Message
	// Progress is called with each line of progress from the worker; it may be nil. If callers attach to a call in
	// flight, only the first caller's Progress is called.
	Progress func(line string)
}

// Ask calls a worker. A repeated key attaches to the call in flight. A failure on the worker's side is the outcome's
// error. The call itself fails if it could not begin ([effect.IsNotStarted]), was cancelled, or has to be continued by
// another process.
func (w *Workers) Ask(ctx context.Context, r Request) (*agentv1.WorkerOutcome, error) {
	key := effect.Key{Project: r.Project, ID: r.Key}
	hash, err := effectrpc.Hash(&agentv1.WorkerRef{Kind: r.Worker.GetKind(), Name: r.Worker.GetName()}, r.Payload)
	if err != nil {
		return nil, err
	}
	request := effect.Request{
		Key: key, Hash: hash, Unique: true, Epoch: r.Epoch, Reissue: true,
		Kept: func() { w.host.Accept(key) },
	}
	kept, err := w.effects.Do(ctx, request, func(ctx context.Context, attempt effect.Attempt) ([]byte, error) { return w.call(ctx, r, attempt) })
	if err != nil {
		return nil, err
	}
	outcome := &agentv1.WorkerOutcome{}
	if err := proto.Unmarshal(kept.Body, outcome); err != nil {
		return nil, rpcerr.Internal("a worker's answer that was kept cannot be read: %w", err)
	}
	return outcome, nil
}

// call passes the call to a worker and returns its outcome.
func (w *Workers) call(ctx context.Context, r Request, attempt effect.Attempt) ([]byte, error) {
	began := time.Now()
	payload, err := protojson.Marshal(r.Payload)
	if err != nil {
		return nil, err
	}
	var content *agentv1.WorkerAnswer
	answer, err := w.host.Do(ctx, worker.Call{
		Key: attempt.Key, Kind: r.Worker.GetKind(), Name: r.Worker.GetName(), PayloadJSON: string(payload), OnUnknown: r.Worker.GetOnUnknown(),
		Timeout: r.Worker.GetTimeout().AsDuration(), Progress: r.Progress, Lost: attempt.Reissued > 0,
		Read: func(payload string) (err error) { content, err = read(r.Worker, payload); return err },
	})
	outcome := &agentv1.WorkerOutcome{}
	unusable, isUnusable := errors.AsType[*worker.UnusableError](err)
	switch {
	case isUnusable:
		outcome.Error = fault(r, errorsv1.ErrorReason_ERROR_REASON_WORKER_FAILED, unusable.Error())
	case errors.Is(err, worker.ErrUnknown):
		outcome.Error = fault(r, errorsv1.ErrorReason_ERROR_REASON_EFFECT_INDETERMINATE, worker.ErrUnknown.Error())
	case errors.Is(err, worker.ErrTimeout):
		outcome.Error = fault(r, errorsv1.ErrorReason_ERROR_REASON_WORKER_FAILED, "it did not answer within "+r.Worker.GetTimeout().AsDuration().String())
	case rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_WORKER_NOT_CONNECTED):
		outcome.Error = &agentv1.RunError{Reason: rpcerr.ReasonName(rpcerr.Reason(err)), Message: err.Error()}
	case err != nil:
		return nil, err
	case answer.Error != nil:
		outcome.Error = fault(r, errorsv1.ErrorReason_ERROR_REASON_WORKER_FAILED, answer.Error.GetType()+": "+answer.Error.GetMessage())
	default:
		outcome.Content = content
	}
	ended := time.Now()
	outcome.Timing = &effectv1.Timing{
		StartTime: timestamppb.New(began), EndTime: timestamppb.New(ended), Queued: durationpb.New(answer.Queued), Working: durationpb.New(max(0, ended.Sub(began)-answer.Queued)),
		Attempts: int32(1 + attempt.Reissued), Reissued: attempt.Reissued > 0,
	}
	return proto.Marshal(outcome)
}

func fault(r Request, reason errorsv1.ErrorReason, message string) *agentv1.RunError {
	return &agentv1.RunError{Reason: rpcerr.ReasonName(reason), Message: "the worker that serves " + r.Worker.GetKind() + " " + r.Worker.GetName() + ": " + message}
}

// Cancel stops a call, or keeps it from beginning.
func (w *Workers) Cancel(ctx context.Context, project, key string) error {
	_, err := w.effects.Cancel(ctx, effect.Key{Project: project, ID: key})
	return err
}

// Release drops results that are in a journal.
func (w *Workers) Release(ctx context.Context, project string, keys []string) error {
	released := make([]effect.Key, len(keys))
	for i, id := range keys {
		released[i] = effect.Key{Project: project, ID: id}
	}
	return w.effects.Release(ctx, released...)
}

// ReleaseRuns drops all results of runs of a project, all by their names.
func (w *Workers) ReleaseRuns(ctx context.Context, parent string, runs []string) error {
	project, ids, err := resource.Children(parent, "runs", runs)
	if err != nil {
		return err
	}
	return w.effects.ReleaseRuns(ctx, project, ids...)
}
