package effects

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/peers"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// modelCall is the effect of a ModelIntent.
type modelCall struct {
	client   modelv1.ModelServiceClient
	progress *peers.ProgressListeners
	seq      int64
	// request is the call. Each attempt decides which messages it sends.
	request *modelv1.GenerateRequest
	said    callMessages
	// compact requests a compaction in place of an answer; instructions say what it must preserve.
	compact      bool
	instructions string
}

func (c *Caller) modelCall(s *run.State, of *run.Intent, i *agentv1.ModelIntent) *modelCall {
	ref := s.ModelOf(i)
	r := &modelv1.GenerateRequest{
		Parent: s.Parent(), RequestId: i.GetRequestId(), Attribution: of.Frame.Attribution(i.GetPurpose(), i.GetRole(), int(i.GetTurn())),
		Model: i.GetModel(), Account: ref.GetAccount(), BaseUrl: ref.GetBaseUrl(), ModelArgsJson: ref.GetModelArgsJson(),
		ToolChoice: i.GetToolChoice(), Config: i.GetConfig(), Keep: i.GetPurpose() == agent.PurposeAgent,
		DeferBatched: true,
	}
	switch s.Spec().GetRecordCalls() {
	case agentv1.RecordCalls_RECORD_CALLS_ALL:
		r.RecordCall = true
	case agentv1.RecordCalls_RECORD_CALLS_ERRORS, agentv1.RecordCalls_RECORD_CALLS_UNSPECIFIED:
		r.RecordFailedCall = true
	case agentv1.RecordCalls_RECORD_CALLS_NONE:
	}
	if i.GetContent() != nil {
		r.Tools = i.GetContent().GetTools()
	} else {
		for _, name := range i.GetTools() {
			if d := of.Frame.Tool(name); d != nil {
				r.Tools = append(r.Tools, d.GetInfo())
			}
		}
	}
	return &modelCall{
		client: c.deps.Models, progress: c.deps.Progress, seq: of.Seq(), request: r, said: messagesOf(of.Frame, i),
		compact: i.GetCompact(), instructions: i.GetContent().GetInstructions(),
	}
}

// account returns the account by which the gate counts.
func (c *modelCall) account() string {
	return c.request.GetParent() + "/" + provider(c.request.GetModel()) + "/" + c.request.GetAccount()
}

func (c *modelCall) Do(ctx context.Context, p *Pending) ([]*agentv1.Event, error) {
	if c.compact {
		return c.doCompact(ctx, p)
	}
	began := time.Now()
	defer c.listen(p)()
	answer, err := send(ctx, c, c.generate)
	if err != nil {
		return nil, err
	}
	output := answer.GetOutput()
	message := chat.FirstMessage(output)
	if message == nil {
		return nil, rpcerr.ProviderResponseInvalid(provider(c.request.GetModel()), 0, "the model %s gave no choice", c.request.GetModel())
	}
	chat.CompleteOutput(output)
	message.Source = modelv1.MessageSource_MESSAGE_SOURCE_GENERATE
	content := &agentv1.ModelOutcomeContent{Output: output, Call: answer.GetCall(), Warnings: answer.GetWarnings()}
	keepFailed(content, answer.GetFailedAttempts())
	return []*agentv1.Event{run.NewEvent(&agentv1.ModelOutcome{
		Intent: c.seq, Usage: output.GetUsage(), StopReason: chat.StopReason(output), Timing: p.timing(began, answer.GetTiming()), Cache: answer.GetCache(), FailedAttempts: answer.GetFailedAttempts(),
		UnsentOptions: answer.GetUnsentOptions(), ChangedOptions: answer.GetChangedOptions(), Model: answer.GetModel(), Account: answer.GetAccount(), Key: answer.GetKey(), Content: content,
	})}, nil
}

// doCompact is Do of a compaction.
func (c *modelCall) doCompact(ctx context.Context, p *Pending) ([]*agentv1.Event, error) {
	began := time.Now()
	defer c.listen(p)()
	answer, err := send(ctx, c, c.callCompact)
	if err != nil {
		return nil, err
	}
	if len(answer.GetMessages()) == 0 {
		return nil, rpcerr.ProviderResponseInvalid(provider(c.request.GetModel()), 0, "the compaction of %s left no messages", c.request.GetModel())
	}
	content := &agentv1.ModelOutcomeContent{Compacted: answer.GetMessages(), Call: answer.GetCall(), Warnings: answer.GetWarnings()}
	keepFailed(content, answer.GetFailedAttempts())
	return []*agentv1.Event{run.NewEvent(&agentv1.ModelOutcome{
		Intent: c.seq, Usage: answer.GetUsage(), Timing: p.timing(began, answer.GetTiming()), FailedAttempts: answer.GetFailedAttempts(), Content: content,
	})}, nil
}

// listen passes what is known of the call meanwhile to the run; the returned function ends that.
func (c *modelCall) listen(p *Pending) func() {
	return c.progress.Listen(c.request.GetParent(), c.request.GetRequestId(), func(known *effectv1.Note) { p.note(c.seq, known) })
}

// keepFailed moves the exchanges of failed attempts into the content: from the first attempt that has one, one for each.
func keepFailed(content *agentv1.ModelOutcomeContent, attempts []*modelv1.FailedAttempt) {
	for _, failed := range attempts {
		call := failed.GetCall()
		if call == nil && len(content.GetFailedCalls()) == 0 {
			continue
		}
		if call == nil {
			call = &modelv1.ModelCall{}
		}
		content.FailedCalls, failed.Call = append(content.GetFailedCalls(), call), nil
	}
}

// timing adds to how a call spent its time what the call waited here.
func (p *Pending) timing(began time.Time, timing *effectv1.Timing) *effectv1.Timing {
	if timing == nil {
		timing = &effectv1.Timing{}
	}
	if waited := p.waited(began); waited > time.Millisecond {
		timing.Queued = durationpb.New(timing.GetQueued().AsDuration() + waited)
	}
	return timing
}

func (c *modelCall) Services() []string { return []string{peers.Modelgw} }

func (c *modelCall) Cancel(ctx context.Context, _ ...int64) error {
	_, err := c.client.CancelGenerate(ctx, &modelv1.CancelGenerateRequest{Parent: c.request.GetParent(), RequestId: c.request.GetRequestId()})
	return err
}

func (c *modelCall) Release() *Release {
	return &Release{owner: generates, parent: c.request.GetParent(), key: c.request.GetRequestId()}
}

func (c *modelCall) Failed(err error) []*agentv1.Event {
	outcome := &agentv1.ModelOutcome{Intent: c.seq, Error: run.ErrorOf(err)}
	if e, ok := rpcerr.As(err); ok {
		for _, detail := range e.Details {
			switch detail := detail.(type) {
			case *effectv1.Timing:
				outcome.Timing = detail
			case *modelv1.ModelUsage:
				outcome.Usage = detail
			case *modelv1.FailedAttempt:
				outcome.FailedAttempts = append(outcome.FailedAttempts, detail)
			case *modelv1.ModelCall:
				outcome.Content = &agentv1.ModelOutcomeContent{Call: detail}
			}
		}
	}
	return []*agentv1.Event{run.NewEvent(outcome)}
}

func provider(model string) string {
	name, _, _ := strings.Cut(model, "/")
	return name
}
