package call

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/effect/effectrpc"
	"github.com/evalfleet/evalfleet/pkg/failpoint"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// maxAnswerBytes bounds an answer, some way below the bound of messages.
const maxAnswerBytes = 7 << 19

// reply is the answer of a call, which its key stores: a GenerateResponse, or a CompactResponse. Fields of both have
// one number, and no field of one has the number of another field of the other.
type reply interface {
	proto.Message
	GetTiming() *effectv1.Timing
}

// do makes a call by answer, or attaches to the one that its key names. sink follows a call without a key; a call with
// a key has a stream of its own.
func do[R reply](
	ctx context.Context, c *Calls, w *work, sink generate.Sink, answer func(ctx context.Context, w *work, call *generate.Call, outcome *generate.Outcome) (R, error),
) (none R, err error) {
	asked := effect.Request{Key: w.key, Timeout: w.request.GetTimeout().AsDuration(), Reissue: true}
	if !w.key.IsZero() {
		if asked.Hash, err = effectrpc.Hash(content(w)...); err != nil {
			return none, err
		}
		if asked.Unique = w.key.OfRun(w.request.GetAttribution().GetRun()); asked.Unique {
			asked.Epoch = w.request.GetAttribution().GetOwnerEpoch()
		}
	}
	if w.call.Batched != nil {
		asked.Kept = func() { c.forget(context.WithoutCancel(ctx), w.key) }
	}
	var own *R // the answer of a call that this request began, which so need not be decoded
	result, err := c.deps.Effects.Do(ctx, asked, func(ctx context.Context, attempt effect.Attempt) ([]byte, error) {
		failpoint.Hit("modelgw/after-claim")
		call := w.call
		call.Sink = sink
		if !w.key.IsZero() {
			stream, release := c.streams.Open(w.key)
			defer release()
			stream.Execute(attempt.Reissued)
			call.Sink, call.OnRetry = stream, c.retries.of(w.key)
		}
		call.Origin.Reissued = attempt.Reissued > 0
		outcome := &generate.Outcome{Start: time.Now()}
		answer, err := answer(ctx, w, &call, outcome)
		if rpcerr.NotStarted(err) {
			err = effect.NotStarted(err)
		}
		if err != nil {
			return nil, timed(err, reissued(outcome.Timing(), attempt.Reissued))
		}
		reissued(answer.GetTiming(), attempt.Reissued)
		failpoint.Hit("modelgw/after-answer")
		own = &answer
		if w.key.IsZero() { // It is kept nowhere.
			return nil, nil
		}
		return proto.Marshal(answer)
	})
	if errors.Is(err, effect.ErrIndeterminate) {
		return none, timed(err, reissued(&effectv1.Timing{Attempts: int32(1 + result.Reissued)}, result.Reissued))
	}
	// A refusal of this request says nothing about the call: its requests in batches stay until its outcome is stored.
	if stored := err == nil && result.Joined; w.call.Batched != nil && ctx.Err() == nil && (stored || rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED)) {
		c.forget(ctx, w.key)
	}
	if err != nil {
		return none, err
	}
	failpoint.Hit("modelgw/after-result")
	if own != nil {
		return *own, nil
	}
	return decode[R](result)
}

// forget drops the requests in batches of a call that has ended. Those that it fails to drop expire.
func (c *Calls) forget(ctx context.Context, key effect.Key) {
	if err := c.deps.Batches.Forget(ctx, key); err != nil {
		c.deps.Logger.WarnContext(ctx, "a call's requests in batches are not forgotten", "error", err)
	}
}

// reissued notes in timing how often a call was issued before, and returns it.
func reissued(timing *effectv1.Timing, times int) *effectv1.Timing {
	timing.Reissued, timing.Reissues = times > 0, int32(times)
	return timing
}

// timed adds to an error that becomes a call's outcome where its time went.
func timed(err error, timing *effectv1.Timing) error {
	fault, ok := rpcerr.As(err)
	if !ok || effect.IsNotStarted(err) {
		return err
	}
	told := *fault
	told.Details = append(slices.Clone(fault.Details), timing)
	return &told
}

func decode[R reply](result effect.Result) (R, error) {
	var none R
	answer := none.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(result.Body, answer); err != nil {
		return none, rpcerr.Internal("a kept answer cannot be read: %w", err)
	}
	return answer.(R), nil
}

// generated makes a call that continues a conversation: at once, in a batch, or by a fallback.
func (c *Calls) generated(ctx context.Context, w *work, call *generate.Call, outcome *generate.Outcome) (answer *modelv1.GenerateResponse, err error) {
	if call.Past, err = past(ctx, w); err != nil {
		return nil, err
	}
	if since := call.Past.Since; !since.IsZero() {
		outcome.Queued, outcome.Start = time.Since(since), since
	}
	answer, answered, err := c.answerOr(ctx, w, call, outcome)
	if err != nil {
		return nil, err
	}
	answer.UnsentOptions, answer.ChangedOptions = answered.unsentOptions(), answered.changed
	answer.Warnings = append(answered.warnings(), answer.Warnings...)
	if w.request.GetKeep() {
		answer.Prefix = c.keep(w, answer.GetOutput())
	}
	return answer, nil
}

// run sends a call through the pipeline.
func (c *Calls) run(ctx context.Context, call *generate.Call, outcome *generate.Outcome) (*provider.Response, error) {
	var err error
	if call.Conversation, err = prepare.Load(ctx, call.Conversation, c.blobsOf(call.Origin.Project)); err != nil {
		return nil, effect.NotStarted(ended(ctx, err))
	}
	response, err := c.deps.Pipeline(ctx, call, outcome)
	if err != nil {
		return nil, outcome.Explain(ended(ctx, err))
	}
	return response, nil
}

// answer is the answer of a call that continues a conversation.
func (c *Calls) answer(ctx context.Context, call *generate.Call, outcome *generate.Outcome) (*modelv1.GenerateResponse, error) {
	prepared := call.Messages
	response, err := c.run(ctx, call, outcome)
	if err != nil {
		return nil, err
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
		Timing:         outcome.Timing(),
		Cache:          outcome.Cache,
		Call:           response.Call,
		Config:         call.Config,
		Warnings:       response.Warnings,
		FailedAttempts: outcome.FailedAttempts(),
		BrokenOff:      response.BrokenOff,
		Model:          call.Model.FullName(),
	}
	if outcome.Cache != modelv1.CacheUse_CACHE_USE_READ {
		answer.Account, answer.Key = call.Model.Account, int32(outcome.Key)
	}
	if call.Changed && call.Record == provider.RecordAll {
		answer.PreparedMessages = prepared
	}
	return fitted(answer), nil
}

// fitted removes the optional parts of an answer if it would not fit into a message.
func fitted(answer *modelv1.GenerateResponse) *modelv1.GenerateResponse {
	if answer.PreparedMessages == nil && answer.GetCall() == nil && len(answer.GetFailedAttempts()) == 0 {
		return answer
	}
	if proto.Size(answer) > maxAnswerBytes {
		answer.PreparedMessages = nil
		answer.Warnings = append(answer.Warnings, "the prepared messages are left out: the answer would be too large with them")
	}
	answer.Call, answer.Warnings = fitting(answer, answer.GetCall(), answer.GetFailedAttempts(), answer.GetWarnings())
	return answer
}

// blobsOf reads the bodies of one project.
func (c *Calls) blobsOf(project string) prepare.ReadBlob {
	return func(ctx context.Context, hash string) ([]byte, error) {
		if c.deps.Blobs == nil {
			return nil, rpcerr.NotBuiltYet("a blob store beside this model gateway")
		}
		return c.deps.Blobs(ctx, project, hash)
	}
}

// ended returns the cause of the end of a context that cut a call short, if the context has one.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, context.DeadlineExceeded):
		late := rpcerr.DeadlineExceeded("the call did not end within its time")
		if cut := provider.ExchangeOf(err); cut != nil {
			_ = late.WithDetail(provider.Small(cut))
		}
		return late
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
	return rpcerr.ModelRefused(call.Model.FullName(), why)
}

// fitting returns the record and the warnings of an answer: without the record, and without those of its failed
// attempts, if it would not fit into a message with them.
func fitting(answer proto.Message, call *modelv1.ModelCall, attempts []*modelv1.FailedAttempt, warnings []string) (*modelv1.ModelCall, []string) {
	if proto.Size(answer) <= maxAnswerBytes {
		return call, warnings
	}
	for _, failed := range attempts {
		if failed.Call != nil { // An attempt without a record is shared with the watchers of the retries.
			failed.Call = nil
		}
	}
	return nil, append(warnings, "the records of the call are left out: the answer would be too large with them")
}

// content is what determines a call: the request without its key, its time, its origin, whether a failure is recorded
// and whether its conversation is kept, and the instructions of a compaction. The hash of the conversation is the same
// however it was sent.
func content(w *work) []proto.Message {
	r := w.request
	all := []proto.Message{&modelv1.GenerateRequest{
		Parent: r.GetParent(), Model: r.GetModel(), Account: r.GetAccount(), BaseUrl: r.GetBaseUrl(), ModelArgsJson: r.GetModelArgsJson(),
		Prefix: w.asked.Prefix(), Tools: r.GetTools(), ToolChoice: r.GetToolChoice(), Config: r.GetConfig(),
		Raw: r.GetRaw(), RecordCall: r.GetRecordCall(), Fallbacks: r.Fallbacks,
	}}
	if w.call.Compact != nil {
		all = append(all, &modelv1.CompactRequest{Instructions: *w.call.Compact})
	}
	return all
}
