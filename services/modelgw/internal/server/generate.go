package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/failpoint"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// maxAnswerBytes bounds an answer, some way below the bound of messages.
const maxAnswerBytes = 7 << 19

// Generate implements ModelService.
func (s *Server) Generate(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.GenerateResponse, error) {
	w, err := s.plan(r)
	if err != nil {
		return nil, err
	}
	if r.GetValidateOnly() {
		return s.validate(ctx, w)
	}
	return s.do(ctx, w, nil)
}

// validate fails as the call would where that is known without one, and says what it would be made with.
func (s *Server) validate(ctx context.Context, w *work) (*modelv1.GenerateResponse, error) {
	r, c := w.request, &w.call
	ref := provider.Ref{Project: c.Origin.Project, Model: r.GetModel(), Account: r.GetAccount(), BaseURL: r.GetBaseUrl(), Args: r.GetModelArgsJson()}
	if err := s.Registry.Check(ctx, ref); err != nil {
		return nil, err
	}
	if err := c.Model.Check(c.Config); err != nil {
		return nil, err
	}
	if err := generate.Affordable(s.Budgets, s.Prices, c); err != nil {
		return nil, err
	}
	return &modelv1.GenerateResponse{
		Config: c.Config, UnsentOptions: w.unsentOptions(), Warnings: w.warnings(), Prices: s.Prices[c.Model.FullName()],
	}, nil
}

// work is a call that was asked for, ready to be made.
type work struct {
	request *modelv1.GenerateRequest
	key     effect.Key
	call    generate.Call
	// unsent are options of the request that the provider is not sent; the call's configuration is without them.
	unsent []provider.Unsent
}

// unsentOptions names what the provider is not sent.
func (w *work) unsentOptions() []string {
	var all []string
	for _, u := range w.unsent {
		all = append(all, u.Option)
	}
	return all
}

// warnings says for people which options the provider is not sent.
func (w *work) warnings() []string {
	var all []string
	for _, u := range w.unsent {
		all = append(all, fmt.Sprintf("%s is not sent to %s, %s", u.Option, w.call.Model.FullName(), u.Why))
	}
	return all
}

// plan checks a request and prepares its call. What fails here has no effect and is kept under no key.
func (s *Server) plan(r *modelv1.GenerateRequest) (*work, error) {
	project, err := resource.Project("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	if err := unsupported(r); err != nil {
		return nil, err
	}
	if err := chat.CheckConfig(r.GetConfig()); err != nil {
		return nil, err
	}
	model, err := s.Registry.Open(provider.Ref{
		Project: project, Model: r.GetModel(), Account: r.GetAccount(), BaseURL: r.GetBaseUrl(), Args: r.GetModelArgsJson(),
	})
	if err != nil {
		return nil, err
	}
	conversation, err := prepare.Prepare(prepare.Conversation{
		Messages: r.GetMessages(), Tools: r.GetTools(), Choice: r.GetToolChoice(), Config: r.GetConfig(),
	}, model.Capabilities())
	if err != nil {
		return nil, err
	}
	sent, unsent := provider.Sent(model.Provider, conversation.Config)
	conversation.Config = sent
	w := &work{request: r, unsent: unsent, call: generate.Call{
		Model: model, BaseURL: r.GetBaseUrl(), Args: r.GetModelArgsJson(), Conversation: conversation,
		Origin: provider.Origin{Project: project, RequestID: r.GetRequestId(), Attribution: r.GetAttribution()},
		Scopes: r.GetBudgetScopes(), Record: recordOf(r),
	}}
	if r.GetRequestId() != "" {
		w.key = effect.Key{Project: project, ID: r.GetRequestId()}
	}
	return w, nil
}

// recordOf says of which attempts a request wants the record.
func recordOf(r *modelv1.GenerateRequest) provider.Record {
	switch {
	case r.GetRecordCall():
		return provider.RecordAll
	case r.GetRecordFailedCall():
		return provider.RecordFailures
	default:
		return provider.RecordNone
	}
}

// unsupported refuses what is not built yet.
func unsupported(r *modelv1.GenerateRequest) error {
	switch {
	case r.GetRaw() != nil:
		return rpcerr.NotBuiltYet("generating from a request in a vendor's form")
	case r.GetPrefix() != nil:
		return rpcerr.PrefixUnknown(r.GetPrefix().GetHash(), "the prefix is not held here; send all messages")
	case proto.Size(r.GetConfig().GetBatch()) > 0: // A size alone asks for a batch, too.
		return rpcerr.Wrap(rpcerr.NotBuiltYet("batch processing"), "config.batch")
	default:
		return nil
	}
}

// do makes a call, or attaches to the one that its key names. sink follows a call without a key; one with a key has a stream of its own.
func (s *Server) do(ctx context.Context, w *work, sink generate.Sink) (*modelv1.GenerateResponse, error) {
	asked := effect.Request{Key: w.key, Timeout: w.request.GetTimeout().AsDuration(), Reissue: true}
	if !w.key.IsZero() {
		var err error
		if asked.Hash, err = contentHash(w.request); err != nil {
			return nil, err
		}
		asked.Unique = w.key.OfRun(w.request.GetAttribution().GetRun())
	}
	var own *modelv1.GenerateResponse // the answer of a call without a key, which is kept nowhere and so need not be encoded
	result, err := s.Runner.Do(ctx, asked, func(ctx context.Context, attempt effect.Attempt) ([]byte, error) {
		failpoint.Hit("modelgw/after-claim")
		call := w.call
		call.Sink = sink
		if !w.key.IsZero() {
			stream, release := s.streams.Open(w.key)
			defer release()
			call.Sink, call.Asleep = stream, s.retries.of(w.key)
		}
		call.Origin.Reissued = attempt.Reissued > 0
		answer, err := s.answer(ctx, &call)
		if err != nil {
			return nil, timed(err, reissued(call.Notes.Timing(), attempt.Reissued))
		}
		answer.UnsentOptions, answer.Warnings = w.unsentOptions(), append(w.warnings(), answer.Warnings...)
		reissued(answer.Timing, attempt.Reissued)
		failpoint.Hit("modelgw/after-answer")
		if w.key.IsZero() {
			own = answer
			return nil, nil
		}
		return proto.Marshal(answer)
	})
	if errors.Is(err, effect.ErrIndeterminate) {
		return nil, timed(effectError(err, w.key), reissued(&effectv1.Timing{Attempts: int32(1 + result.Reissued)}, result.Reissued))
	}
	if err != nil {
		return nil, effectError(err, w.key)
	}
	failpoint.Hit("modelgw/after-result")
	if own != nil {
		return own, nil
	}
	return decode(result)
}

// reissued notes in timing how often a call was issued before, and returns it.
func reissued(timing *effectv1.Timing, times int) *effectv1.Timing {
	timing.Reissued, timing.Reissues = times > 0, int32(times)
	return timing
}

// timed adds to an error that becomes a call's outcome where its time went.
func timed(err error, timing *effectv1.Timing) error {
	fault, ok := rpcerr.As(err)
	if !ok || Passing(err) {
		return err
	}
	told := *fault
	told.Details = append(slices.Clone(fault.Details), timing)
	return &told
}

func decode(result effect.Result) (*modelv1.GenerateResponse, error) {
	answer := &modelv1.GenerateResponse{}
	if err := proto.Unmarshal(result.Body, answer); err != nil {
		return nil, rpcerr.Internal("a kept answer cannot be read: %w", err)
	}
	return answer, nil
}

// answer sends a call through the pipeline.
func (s *Server) answer(ctx context.Context, call *generate.Call) (*modelv1.GenerateResponse, error) {
	call.Notes.Start = time.Now()
	prepared := call.Messages
	var err error
	if call.Messages, err = prepare.Load(ctx, prepared, s.blobsOf(call.Origin.Project)); err != nil {
		return nil, ended(ctx, &notBegunError{err})
	}
	response, err := s.Pipeline(ctx, call)
	if err != nil {
		return nil, call.Notes.Explain(ended(ctx, err))
	}
	output := response.Output
	chat.CompleteOutput(output)
	if tokens, known := chat.ContextTokens(output); known {
		output.InputContextTokens = &tokens
	}
	if call.Config.GetFailOnRefusal() && chat.StopReason(output) == modelv1.StopReason_STOP_REASON_CONTENT_FILTER {
		return nil, refused(call, output).WithDetail(output.GetUsage())
	}
	answer := &modelv1.GenerateResponse{
		Output:         output,
		Timing:         call.Notes.Timing(),
		Cache:          call.Notes.Cache,
		Call:           response.Call,
		Config:         call.Config,
		Warnings:       response.Warnings,
		FailedAttempts: call.Notes.FailedAttempts(),
		BrokenOff:      response.BrokenOff,
	}
	if call.Changed {
		answer.PreparedMessages = prepared
	}
	return fitting(answer), nil
}

// blobsOf reads the bodies of one project.
func (s *Server) blobsOf(project string) prepare.ReadBlob {
	return func(ctx context.Context, hash string) ([]byte, error) {
		if s.Blobs == nil {
			return nil, rpcerr.NotBuiltYet("a blob store beside this model gateway")
		}
		return s.Blobs(ctx, project, hash)
	}
}

// ended says why a context ended that cut a call short, where it says so.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, context.DeadlineExceeded):
		return rpcerr.DeadlineExceeded("the call did not end within its time")
	case errors.Is(cause, effect.ErrCancelled):
		return rpcerr.EffectCancelled("", "the call was cancelled") // The caller gets its details, and the key from the ledger's side.
	default:
		return cause
	}
}

func refused(call *generate.Call, output *modelv1.ModelOutput) *rpcerr.Error {
	why := output.GetChoices()[0].GetStopDetails().GetExplanation()
	if why == "" {
		why = "no reason given"
	}
	return rpcerr.ProviderRejected(call.Model.Kind.Name, 0, "%s refused to answer: %s", call.Model.FullName(), why)
}

// fitting leaves out what an answer can do without where it would not fit into a message.
func fitting(answer *modelv1.GenerateResponse) *modelv1.GenerateResponse {
	if proto.Size(answer) > maxAnswerBytes {
		answer.PreparedMessages = nil
		answer.Warnings = append(answer.Warnings, "the prepared messages are left out: the answer would be too large with them")
	}
	if proto.Size(answer) > maxAnswerBytes {
		answer.Call = nil
		for _, failed := range answer.GetFailedAttempts() {
			if failed.Call != nil { // An attempt without a record is shared with those who watch the retries.
				failed.Call = nil
			}
		}
		answer.Warnings = append(answer.Warnings, "the records of the call are left out: the answer would be too large with them")
	}
	return answer
}

// contentHash is a hash over what decides a call: the request without its key, its time, on whose behalf it is made,
// and whether a failure is recorded.
func contentHash(r *modelv1.GenerateRequest) (effect.Hash, error) {
	content := &modelv1.GenerateRequest{
		Parent: r.GetParent(), Model: r.GetModel(), Account: r.GetAccount(), BaseUrl: r.GetBaseUrl(), ModelArgsJson: r.GetModelArgsJson(),
		Messages: r.GetMessages(), Prefix: r.GetPrefix(), Tools: r.GetTools(), ToolChoice: r.GetToolChoice(), Config: r.GetConfig(),
		Raw: r.GetRaw(), BudgetScopes: r.GetBudgetScopes(), RecordCall: r.GetRecordCall(),
	}
	buffer := hashBuffers.Get().(*[]byte)
	defer hashBuffers.Put(buffer)
	encoded, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend((*buffer)[:0], content)
	if err != nil {
		return effect.Hash{}, rpcerr.InvalidRequest("the request cannot be encoded: %v", err)
	}
	*buffer = encoded
	return sha256.Sum256(encoded), nil
}

// hashBuffers hold requests while they are hashed, which have at most the size of a message.
var hashBuffers = sync.Pool{New: func() any { return new([]byte) }}
