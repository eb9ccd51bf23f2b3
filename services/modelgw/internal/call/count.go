package call

import (
	"context"
	"errors"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/tokenizer"
)

// countPatience is how long a question for a number of tokens that fails is repeated, in seconds.
const countPatience = 120

// CountTokens counts the tokens of a request: as the provider counts them if its API does so for the model, else by an
// estimate, also where the provider cannot be sent the media. A model whose arguments are invalid counts nothing. A
// provider that fails to count is an error, never an estimate.
func (c *Calls) CountTokens(ctx context.Context, r *modelv1.CountTokensRequest) (*modelv1.CountTokensResponse, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	ref := provider.Ref{Project: project, Model: r.GetModel(), Account: r.GetAccount(), Args: r.GetModelArgsJson()}
	if err := c.deps.Registry.Check(ctx, ref); err != nil {
		return nil, err
	}
	model, err := c.deps.Registry.Open(ref)
	if err != nil {
		return nil, err
	}
	messages := r.GetMessages()
	if r.GetPrefix() != nil {
		all, err := c.conversation(project, r.GetPrefix(), messages)
		if err != nil {
			return nil, err
		}
		messages = all.Messages()
	}
	if _, counts := model.Provider.(provider.TokenCounter); !counts || len(messages)+len(r.GetTools()) == 0 {
		return estimate(messages, r.GetTools()), nil
	}
	n := count{
		ctx: ctx, ask: c.deps.Counting, read: c.blobsOf(project), model: model, project: project,
		beginning: func() []byte { return generate.Beginning(messages) },
	}
	answer := &modelv1.CountTokensResponse{}
	all := int64(0)
	if len(messages) > 0 {
		all = n.of(messages, r.GetTools())
	}
	if len(r.GetTools()) > 0 {
		probe := []*modelv1.ChatMessage{chat.User("?")}
		answer.ToolTokens = max(0, n.of(probe, r.GetTools())-n.of(probe, nil))
	}
	answer.MessageTokens = max(1, all-answer.GetToolTokens())
	switch {
	case errors.Is(n.err, provider.ErrCountsNone):
		return estimate(messages, r.GetTools()), nil
	case n.err != nil:
		return nil, n.err
	default:
		return answer, nil
	}
}

func estimate(messages []*modelv1.ChatMessage, tools []*toolv1.ToolInfo) *modelv1.CountTokensResponse {
	return &modelv1.CountTokensResponse{
		MessageTokens: tokenizer.Messages(messages), ToolTokens: tokenizer.Tools(tools), Estimated: true,
	}
}

// count asks a provider for numbers of tokens. APIs count requests, with all their parts: what tools add is the
// difference that they make to a short message, since a conversation with calls needs its tools.
type count struct {
	ctx     context.Context //nolint:containedctx // It lives as long as one call.
	ask     generate.Func
	read    prepare.ReadBlob
	model   *provider.Model
	project string
	// beginning selects the credential: that of the conversation for all questions.
	beginning func() []byte
	// err is the first failure; nothing is asked after it.
	err error
}

func (n *count) of(messages []*modelv1.ChatMessage, tools []*toolv1.ToolInfo) int64 {
	if n.err != nil {
		return 0
	}
	config := &modelv1.GenerateConfig{}
	// A request is counted as a client's, also an evaluation's: a number is better than a refusal.
	given := prepare.Conversation{Messages: messages, Tools: tools, Config: config, Client: true}
	caps := n.model.CapabilitiesOf(config)
	conversation, err := prepare.Prepare(given, caps)
	if err != nil { // There are media that the provider cannot be sent.
		n.err = provider.ErrCountsNone
		return 0
	}
	if conversation, err = prepare.Load(n.ctx, conversation, n.read); err != nil {
		n.err = ended(n.ctx, err)
		return 0
	}
	sent := provider.FitTo(n.model.Provider, caps, conversation.Config).Sent
	conversation.Config = chat.Merge(sent, &modelv1.GenerateConfig{Timeout: new(float64(countPatience))})
	outcome := &generate.Outcome{}
	response, err := n.ask(n.ctx, &generate.Call{
		Model: n.model, Conversation: conversation, Origin: provider.Origin{Project: n.project}, Counts: true,
		MaxWait:   countPatience * time.Second,
		Beginning: n.beginning,
	}, outcome)
	if err != nil {
		n.err = outcome.Explain(ended(n.ctx, err))
		return 0
	}
	return response.Tokens
}
