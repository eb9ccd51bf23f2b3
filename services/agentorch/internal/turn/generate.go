package turn

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// modelCall is the effect of a ModelIntent.
type modelCall struct {
	client  modelv1.ModelServiceClient
	seq     int64
	request *modelv1.GenerateRequest
}

func (a *actor) modelCall(seq int64, i *agentv1.ModelIntent) *modelCall {
	s := a.state
	ref := s.ModelOf(i)
	messages := s.Messages()
	if n := int(i.GetMessageCount()); n < len(messages) {
		messages = messages[:n]
	}
	if i.GetContent() != nil {
		messages = i.GetContent().GetMessages()
	}
	r := &modelv1.GenerateRequest{
		Parent: s.Parent(), RequestId: i.GetRequestId(), Attribution: a.attribution(i.GetPurpose(), i.GetRole(), int(i.GetTurn())),
		Model: i.GetModel(), Account: ref.GetAccount(), BaseUrl: ref.GetBaseUrl(), ModelArgsJson: ref.GetModelArgsJson(),
		Messages: messages, ToolChoice: i.GetToolChoice(), Config: i.GetConfig(),
	}
	switch s.Spec().GetRecordCalls() {
	case "all":
		r.RecordCall = true
	case "errors", "":
		r.RecordFailedCall = true
	}
	for _, name := range i.GetTools() {
		if d := s.Tool(name); d != nil {
			r.Tools = append(r.Tools, d.GetInfo())
		}
	}
	if eval := s.Spec().GetAttribution().GetEval(); eval != "" {
		r.BudgetScopes = []string{eval}
	}
	return &modelCall{client: a.engine.deps.Models, seq: seq, request: r}
}

// attribution says on whose behalf an effect of the run happens.
func (a *actor) attribution(purpose, role string, turn int) *effectv1.Attribution {
	s := a.state
	of := s.Spec().GetAttribution()
	at := &effectv1.Attribution{
		Eval: of.GetEval(), Sample: of.GetSample(), Epoch: of.GetEpoch(), Run: s.Name, Turn: int32(turn), Role: role, Purpose: purpose,
	}
	if steps := s.Spec().GetSteps(); s.Step >= 0 && s.Step < len(steps) {
		at.Agent = displayName(steps[s.Step])
	}
	return at
}

// account is what the gate counts by.
func (c *modelCall) account() string {
	return c.request.GetParent() + "/" + provider(c.request.GetModel()) + "/" + c.request.GetAccount()
}

func (c *modelCall) do(ctx context.Context, f *flight) ([]*agentv1.Event, error) {
	began := time.Now()
	defer f.actor.engine.hearing.hear(c.request.GetParent(), c.request.GetRequestId(), func(known *effectv1.Note) { f.note(c.seq, known) })()
	answer, err := c.client.Generate(ctx, c.request)
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
	timing := answer.GetTiming()
	if timing == nil {
		timing = &effectv1.Timing{}
	}
	if waited := f.waited(began); waited > time.Millisecond {
		timing.Queued = durationpb.New(timing.GetQueued().AsDuration() + waited)
	}
	content := &agentv1.ModelOutcomeContent{Output: output, Call: answer.GetCall(), Warnings: answer.GetWarnings()}
	for _, failed := range answer.GetFailedAttempts() {
		if failed.GetCall() != nil {
			content.FailedCalls = append(content.FailedCalls, failed.GetCall())
			failed.Call = nil
		}
	}
	return []*agentv1.Event{event(&agentv1.ModelOutcome{
		Intent: c.seq, Usage: output.GetUsage(), StopReason: chat.StopReason(output), Timing: timing, Cache: answer.GetCache(), FailedAttempts: answer.GetFailedAttempts(),
		UnsentOptions: answer.GetUnsentOptions(), Content: content,
	})}, nil
}

func (c *modelCall) owners() []string { return []string{modelgw} }

func (c *modelCall) stop(ctx context.Context) error {
	_, err := c.client.CancelGenerate(ctx, &modelv1.CancelGenerateRequest{Parent: c.request.GetParent(), RequestId: c.request.GetRequestId()})
	return err
}

func (c *modelCall) failed(err error) []*agentv1.Event {
	outcome := &agentv1.ModelOutcome{Intent: c.seq, Error: runError(err)}
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
	return []*agentv1.Event{event(outcome)}
}
