package servicetest

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/prefix"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Models is a model gateway. Its other methods panic.
type Models struct {
	modelv1.ModelServiceClient
	Ledger

	// Retries delivers news of calls that wait for another attempt; nil delivers nothing.
	Retries chan *modelv1.WatchRetriesResponse
	// Answer returns the output of a call. It may block until ctx ends.
	Answer func(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error)
	// Failed are the attempts that fail before each answer.
	Failed []*modelv1.FailedAttempt
	// Shorten returns the messages that a compaction leaves; nil: the provider cannot compact.
	Shorten func(r *modelv1.CompactRequest) ([]*modelv1.ChatMessage, error)
	// Window is the context window of every model; 0 is unknown.
	Window int64

	// Forgets is the number of conversations that are evicted together, so that their prefixes become unknown.
	Forgets atomic.Int32

	mu       sync.Mutex
	kept     map[string][]*modelv1.ChatMessage // by project and prefix
	sent     []int
	requests []*modelv1.GenerateRequest
	compacts []*modelv1.CompactRequest
	checks   []*modelv1.GenerateRequest
}

// Generate implements the client.
func (m *Models) Generate(ctx context.Context, r *modelv1.GenerateRequest, _ ...grpc.CallOption) (*modelv1.GenerateResponse, error) {
	if r.GetValidateOnly() {
		m.mu.Lock()
		m.checks = append(m.checks, proto.CloneOf(r))
		m.mu.Unlock()
		return validate(r)
	}
	r = proto.CloneOf(r)
	m.mu.Lock()
	m.sent = append(m.sent, len(r.GetMessages()))
	m.mu.Unlock()
	messages, err := m.conversation(r.GetParent(), r.GetPrefix(), r.GetMessages())
	if err != nil {
		return nil, err
	}
	r.Prefix, r.Messages = nil, messages
	content := proto.CloneOf(r)
	content.Attribution, content.Timeout, content.Keep = nil, nil, false
	result, err := m.do(ctx, keyOf(r.GetParent(), r.GetRequestId()), content, func(ctx context.Context) (any, error) {
		m.mu.Lock()
		m.requests = append(m.requests, proto.CloneOf(r))
		m.mu.Unlock()
		output, err := m.Answer(ctx, r)
		if err != nil {
			return nil, err
		}
		if said := chat.FirstMessage(output); said != nil && r.GetKeep() {
			output = proto.CloneOf(output)
			said = chat.FirstMessage(output)
			said.Id, said.Source = cmp.Or(said.GetId(), chat.NewID()), modelv1.MessageSource_MESSAGE_SOURCE_GENERATE
		}
		return &modelv1.GenerateResponse{Output: output, Timing: &effectv1.Timing{Working: durationpb.New(0), Attempts: 1}, FailedAttempts: m.Failed}, nil
	})
	if err != nil {
		return nil, err
	}
	answer, _ := result.(*modelv1.GenerateResponse)
	answer = proto.CloneOf(answer)
	if r.GetKeep() {
		m.keep(r.GetParent(), messages)
		if first := chat.FirstMessage(answer.GetOutput()); first != nil {
			m.keep(r.GetParent(), append(slices.Clip(messages), proto.CloneOf(first)))
		}
	}
	return answer, nil
}

// Compact implements the client.
func (m *Models) Compact(ctx context.Context, r *modelv1.CompactRequest, _ ...grpc.CallOption) (*modelv1.CompactResponse, error) {
	r = proto.CloneOf(r)
	messages, err := m.conversation(r.GetParent(), r.GetPrefix(), r.GetMessages())
	if err != nil {
		return nil, err
	}
	r.Prefix, r.Messages = nil, messages
	content := proto.CloneOf(r)
	content.Attribution = nil
	result, err := m.do(ctx, keyOf(r.GetParent(), r.GetRequestId()), content, func(context.Context) (any, error) {
		m.mu.Lock()
		m.compacts = append(m.compacts, r)
		m.mu.Unlock()
		if m.Shorten == nil {
			return nil, rpcerr.CapabilityUnsupported("compaction", "the provider of %s cannot compact", r.GetModel())
		}
		left, err := m.Shorten(r)
		if err != nil {
			return nil, err
		}
		return &modelv1.CompactResponse{Messages: left, Timing: &effectv1.Timing{Working: durationpb.New(0), Attempts: 1}}, nil
	})
	if err != nil {
		return nil, err
	}
	answer, _ := result.(*modelv1.CompactResponse)
	return proto.CloneOf(answer), nil
}

// Compacts returns the compactions so far.
func (m *Models) Compacts() []*modelv1.CompactRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.compacts)
}

// GetModel implements the client.
func (m *Models) GetModel(_ context.Context, r *modelv1.GetModelRequest, _ ...grpc.CallOption) (*modelv1.Model, error) {
	known := &modelv1.Model{Name: r.GetName()}
	if m.Window > 0 {
		known.ContextTokens = &m.Window
	}
	return known, nil
}

// ExtendPrefix implements the client.
func (m *Models) ExtendPrefix(_ context.Context, r *modelv1.ExtendPrefixRequest, _ ...grpc.CallOption) (*modelv1.ExtendPrefixResponse, error) {
	r = proto.CloneOf(r)
	messages, err := m.conversation(r.GetParent(), r.GetPrefix(), r.GetMessages())
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.sent = append(m.sent, len(r.GetMessages()))
	m.mu.Unlock()
	return &modelv1.ExtendPrefixResponse{Prefix: m.keep(r.GetParent(), messages)}, nil
}

// Sent returns the number of messages in each received request, in order, those of ExtendPrefix included.
func (m *Models) Sent() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.sent)
}

// conversation returns messages after those that a prefix identifies.
func (m *Models) conversation(parent string, p *modelv1.MessagePrefix, messages []*modelv1.ChatMessage) ([]*modelv1.ChatMessage, error) {
	if p == nil {
		return messages, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before, ok := m.kept[parent+" "+p.GetHash()]
	if !ok || len(before) != int(p.GetCount()) {
		return nil, rpcerr.PrefixUnknown(p.GetHash(), "forgotten")
	}
	return append(slices.Clip(before), messages...), nil
}

// keep stores messages for later calls, and returns the prefix that identifies them.
func (m *Models) keep(parent string, messages []*modelv1.ChatMessage) *modelv1.MessagePrefix {
	var hash prefix.Hash
	for _, message := range messages {
		digest, _, _ := prefix.DigestOf(message) // Messages that cannot be encoded never arrive here.
		hash = hash.Next(digest)
	}
	p := &modelv1.MessagePrefix{Hash: hash.String(), Count: int32(len(messages))}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = map[string][]*modelv1.ChatMessage{}
	}
	if m.Forgets.Add(-1) < 0 {
		m.kept[parent+" "+p.GetHash()] = messages
	}
	return p
}

// Requests returns the calls that were executed, in order.
func (m *Models) Requests() []*modelv1.GenerateRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*modelv1.GenerateRequest(nil), m.requests...)
}

// Checks returns the calls that were only checked, in order.
func (m *Models) Checks() []*modelv1.GenerateRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*modelv1.GenerateRequest(nil), m.checks...)
}

// WatchRetries implements the client.
func (m *Models) WatchRetries(ctx context.Context, _ *modelv1.WatchRetriesRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[modelv1.WatchRetriesResponse], error) {
	return news[modelv1.WatchRetriesResponse]{ctx: ctx, from: m.Retries}, nil
}

// CancelGenerate implements the client.
func (m *Models) CancelGenerate(_ context.Context, r *modelv1.CancelGenerateRequest, _ ...grpc.CallOption) (*modelv1.CancelGenerateResponse, error) {
	return &modelv1.CancelGenerateResponse{AlreadyDone: m.cancel(keyOf(r.GetParent(), r.GetRequestId()))}, nil
}

// ReleaseGenerate implements the client.
func (m *Models) ReleaseGenerate(_ context.Context, r *modelv1.ReleaseGenerateRequest, _ ...grpc.CallOption) (*modelv1.ReleaseGenerateResponse, error) {
	if err := m.deaf(); err != nil {
		return nil, err
	}
	for _, id := range r.GetRequestIds() {
		m.release(keyOf(r.GetParent(), id))
	}
	return &modelv1.ReleaseGenerateResponse{}, nil
}

// ListProviders implements the client: mockllm is available, one provider has no key except on Azure, and one has
// models whose names include the account.
func (m *Models) ListProviders(context.Context, *modelv1.ListProvidersRequest, ...grpc.CallOption) (*modelv1.ListProvidersResponse, error) {
	return &modelv1.ListProvidersResponse{Providers: []*modelv1.Provider{
		{Name: "mockllm", Accounts: []*modelv1.Account{{Name: "default", Usable: true}}},
		{Name: "openai", Accounts: []*modelv1.Account{
			{Name: "default", Problem: "set OPENAI_API_KEY"}, {Name: "default", Service: "azure", Usable: true}, {Name: "default", Service: "bedrock", Problem: "set a region"},
		}},
		{Name: "openai-api", AccountInModel: true, Accounts: []*modelv1.Account{{Name: "keyless", Problem: "set api_key"}, {Name: "local", Usable: true}}},
	}}, nil
}

// validate is Generate with validate_only: every model accepts only the arguments outputs and script, no batch except
// mockllm/batched, and has a price, except mockllm/unpriced. mockllm/cold is not sent a temperature, and mockllm/plain
// cannot think.
func validate(r *modelv1.GenerateRequest) (*modelv1.GenerateResponse, error) {
	var args map[string]json.RawMessage
	if text := r.GetModelArgsJson(); text != "" {
		if err := json.Unmarshal([]byte(text), &args); err != nil {
			return nil, rpcerr.InvalidField("model_args_json", "%v", err)
		}
	}
	for name := range args {
		if name != "outputs" && name != "script" {
			return nil, rpcerr.InvalidField("model_args_json", "unknown field %q", name)
		}
	}
	if r.GetConfig().GetBatch() != nil && r.GetModel() != "mockllm/batched" {
		return nil, rpcerr.In("config.batch", rpcerr.CapabilityUnsupported("batch", "%s has no batch API", r.GetModel()))
	}
	if r.GetModel() == "mockllm/plain" && r.GetConfig().GetReasoningEffort() != "" {
		return nil, rpcerr.CapabilityUnsupported("reasoning", "mockllm/plain cannot think")
	}
	answer := &modelv1.GenerateResponse{Config: r.GetConfig()}
	if r.GetModel() != "mockllm/unpriced" {
		answer.Prices = &modelv1.Prices{}
	}
	if r.GetModel() == "mockllm/cold" && r.GetConfig() != nil && r.GetConfig().Temperature != nil {
		answer.UnsentOptions, answer.Warnings = []string{"temperature"}, []string{"temperature is not sent to mockllm/cold"}
	}
	if r.GetModel() == "mockllm/cold" && r.GetConfig().GetReasoningEffort() == "minimal" {
		answer.ChangedOptions = []*modelv1.ChangedOption{{Option: "reasoning_effort", Asked: "minimal", Sent: "low"}}
		answer.Warnings = append(answer.Warnings, "reasoning_effort minimal is sent to mockllm/cold as low")
	}
	if r.GetModel() == "mockllm/terse" && r.GetConfig() != nil && r.GetConfig().Temperature != nil {
		answer.UnsentOptions = []string{"temperature"} // Without the text for it.
	}
	return answer, nil
}

// Say is an output of one text, with usage of 10 and 5 tokens.
func Say(text string, calls ...*toolv1.ToolCall) *modelv1.ModelOutput {
	reason := modelv1.StopReason_STOP_REASON_STOP
	if len(calls) > 0 {
		reason = modelv1.StopReason_STOP_REASON_TOOL_CALLS
	}
	message := chat.Assistant(text, calls...)
	message.Id = ""
	output := chat.MessageOutput("mockllm/model", message, reason)
	output.Usage = &modelv1.ModelUsage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15}
	return output
}

// ByTurn answers by the number of the call within its run, so that nothing depends on the order of calls; the last
// answer repeats.
func ByTurn(outputs ...func() *modelv1.ModelOutput) func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
	return func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		turn := min(max(1, int(r.GetAttribution().GetTurn())), len(outputs))
		return outputs[turn-1](), nil
	}
}

// Says is Say for ByTurn.
func Says(text string, calls ...*toolv1.ToolCall) func() *modelv1.ModelOutput {
	return func() *modelv1.ModelOutput {
		cloned := make([]*toolv1.ToolCall, len(calls))
		for i, c := range calls {
			cloned[i] = proto.CloneOf(c)
		}
		return Say(text, cloned...)
	}
}
