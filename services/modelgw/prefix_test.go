package modelgw_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

const unknownPrefix = errorsv1.ErrorReason_ERROR_REASON_PREFIX_UNKNOWN

// begun is a call whose conversation is kept, and the prefix that identifies it with its answer.
func begun(t *testing.T, g *gateway) *modelv1.GenerateResponse {
	t.Helper()
	r := ask("", "first")
	r.Keep = true
	answer, err := g.models.Generate(t.Context(), r)
	require.NoError(t, err)
	require.EqualValues(t, 2, answer.GetPrefix().GetCount())
	return answer
}

func TestACallGoesOnWithItsPrefix(t *testing.T) {
	t.Parallel()
	g := start(t)
	answer := begun(t, g)
	more := ask("", "second")
	more.Prefix, more.RecordCall = answer.GetPrefix(), true
	short, err := g.models.Generate(t.Context(), more)
	require.NoError(t, err)
	assert.Nil(t, short.GetPrefix(), "it is not to be kept")
	long := ask("", "first")
	long.RecordCall = true
	long.Messages = append(long.Messages, chat.FirstMessage(answer.GetOutput()), chat.User("second"))
	all, err := g.models.Generate(t.Context(), long)
	require.NoError(t, err)
	for _, said := range []string{"first", "Default output", "second"} {
		assert.Contains(t, short.GetCall().GetRequestJson(), said)
	}
	assert.Equal(t, all.GetOutput().GetUsage(), short.GetOutput().GetUsage(), "all of it counts")
}

// TestTheSameConversationIsTheSameRequest repeats a call under its key with a longer prefix, and with other messages.
func TestTheSameConversationIsTheSameRequest(t *testing.T) {
	t.Parallel()
	g := start(t)
	answer := begun(t, g)
	more := keyed("k", ask("", "second"))
	more.Prefix, more.Keep = answer.GetPrefix(), true
	first, err := g.models.Generate(t.Context(), more)
	require.NoError(t, err)
	whole := keyed("k", ask("", ""))
	whole.Messages = nil
	whole.Prefix, err = extend(t, g, &modelv1.ExtendPrefixRequest{Parent: project, Prefix: answer.GetPrefix(), Messages: more.GetMessages()})
	require.NoError(t, err)
	again, err := g.models.Generate(t.Context(), whole)
	require.NoError(t, err)
	assert.Equal(t, first.GetOutput().GetChoices()[0].GetMessage().GetId(), again.GetOutput().GetChoices()[0].GetMessage().GetId(), "the answer that is kept")
	other := keyed("k", ask("", "another"))
	other.Prefix = answer.GetPrefix()
	_, err = g.models.Generate(t.Context(), other)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), "%v", err)
}

func extend(t *testing.T, g *gateway, r *modelv1.ExtendPrefixRequest) (*modelv1.MessagePrefix, error) {
	t.Helper()
	answer, err := g.models.ExtendPrefix(t.Context(), r)
	return answer.GetPrefix(), err
}

func TestAPrefixIsOfItsProjectAlone(t *testing.T) {
	t.Parallel()
	g := start(t)
	known := begun(t, g).GetPrefix()
	for name, p := range map[string]*modelv1.MessagePrefix{
		"of another version": {Hash: "2" + known.GetHash()[1:], Count: 2},
		"with another count": {Hash: known.GetHash(), Count: 3},
		"with another hash":  {Hash: strings.Replace(known.GetHash(), known.GetHash()[60:], "000000", 1), Count: 2},
	} {
		r := ask("", "second")
		r.Prefix = p
		_, err := g.models.Generate(t.Context(), r)
		assert.True(t, rpcerr.Is(err, unknownPrefix), "%s: %v", name, err)
	}
	r := ask("", "second")
	r.Parent, r.Prefix = "projects/other", known
	_, err := g.models.Generate(t.Context(), r)
	assert.True(t, rpcerr.Is(err, unknownPrefix), "%v", err)
	_, err = extend(t, g, &modelv1.ExtendPrefixRequest{Parent: "projects/other", Prefix: known, Messages: r.GetMessages()})
	assert.True(t, rpcerr.Is(err, unknownPrefix), "%v", err)
}

// TestAConversationHasOneEntryInTheCacheHoweverItIsSent makes calls that differ in ids of messages, in how the
// conversation is sent and in its content.
func TestAConversationHasOneEntryInTheCacheHoweverItIsSent(t *testing.T) {
	t.Parallel()
	g := start(t)
	asks := func(p *modelv1.MessagePrefix, messages ...*modelv1.ChatMessage) *modelv1.GenerateResponse {
		t.Helper()
		r := ask("", "")
		r.Prefix, r.Messages, r.Config = p, nil, &modelv1.GenerateConfig{Cache: &modelv1.CacheSetting{Enabled: true}}
		for _, m := range messages {
			m = proto.CloneOf(m)
			m.Id = chat.NewID() // those of another run
			r.Messages = append(r.Messages, m)
		}
		r.Keep = true
		answer, err := g.models.Generate(t.Context(), r)
		require.NoError(t, err)
		return answer
	}
	first, second, third := chat.User("first"), chat.User("second"), chat.User("third")
	begun := asks(nil, first)
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_WRITE, begun.GetCache())
	answer := chat.FirstMessage(begun.GetOutput())

	short := asks(begun.GetPrefix(), second)
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_WRITE, short.GetCache())
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_READ, asks(nil, first, answer, second).GetCache(), "written by its prefix, read whole")
	again := asks(nil, first)
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_READ, again.GetCache())
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_READ, asks(again.GetPrefix(), second).GetCache(), "of another run, by its prefix")

	assert.Equal(t, modelv1.CacheUse_CACHE_USE_WRITE, asks(nil, first, answer, third).GetCache())
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_READ, asks(again.GetPrefix(), third).GetCache(), "written whole, read by its prefix")
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_WRITE, asks(again.GetPrefix(), chat.User("other")).GetCache())
	whole := ask("", "first") // Nothing names this conversation.
	whole.Config = &modelv1.GenerateConfig{Cache: &modelv1.CacheSetting{Enabled: true}}
	unkept, err := g.models.Generate(t.Context(), whole)
	require.NoError(t, err)
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_READ, unkept.GetCache())
}

// TestACachedCallCostsItsNewMessages counts the bytes that are allocated for a call with the cache on which continues a
// conversation of 2,048 messages with 64 parts each. It does not run beside other tests, whose bytes would count.
func TestACachedCallCostsItsNewMessages(t *testing.T) { //nolint:paralleltest // It counts what the process allocates.
	g := start(t)
	var p *modelv1.MessagePrefix
	message := &modelv1.ChatMessage{Role: modelv1.Role_ROLE_USER, Content: chat.ListContent(slices.Repeat([]*contentv1.Content{chat.TextPart("x")}, 64)...)}
	for range 8 {
		part := slices.Repeat([]*modelv1.ChatMessage{message}, 256)
		var err error
		p, err = extend(t, g, &modelv1.ExtendPrefixRequest{Parent: project, Prefix: p, Messages: part})
		require.NoError(t, err)
	}
	call := func(text string) (bytes uint64, use modelv1.CacheUse) {
		r := ask("", text)
		r.Prefix, r.Config, r.Keep = p, &modelv1.GenerateConfig{Cache: &modelv1.CacheSetting{Enabled: true}}, true
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		answer, err := g.models.Generate(t.Context(), r)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		p = answer.GetPrefix()
		return after.TotalAlloc - before.TotalAlloc, answer.GetCache()
	}
	long := p
	_, use := call("and now?")
	require.Equal(t, modelv1.CacheUse_CACHE_USE_WRITE, use)
	p = long
	bytes, use := call("and now?")
	require.Equal(t, modelv1.CacheUse_CACHE_USE_READ, use)
	assert.Less(t, bytes, uint64(1<<20))
}

// TestAConversationGrowsUpToItsBound sends a conversation in parts until it is too large.
func TestAConversationGrowsUpToItsBound(t *testing.T) {
	t.Parallel()
	g := start(t)
	part := []*modelv1.ChatMessage{chat.User(strings.Repeat("x", 3<<20))}
	var p *modelv1.MessagePrefix
	for range bound.ConversationBytes / (3<<20 + 1<<10) {
		var err error
		p, err = extend(t, g, &modelv1.ExtendPrefixRequest{Parent: project, Prefix: p, Messages: part})
		require.NoError(t, err)
	}
	_, err := extend(t, g, &modelv1.ExtendPrefixRequest{Parent: project, Prefix: p, Messages: part})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
	r := ask("", "and now?")
	r.Prefix = p
	answer, err := g.models.Generate(t.Context(), r)
	require.NoError(t, err)
	assert.Greater(t, answer.GetOutput().GetUsage().GetInputTokens(), int64(bound.ConversationBytes/5))
}
