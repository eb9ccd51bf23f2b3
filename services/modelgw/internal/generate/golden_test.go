package generate_test

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/respcache"
)

func encoded(t *goldentest.T, value any) []byte {
	t.Helper()
	document, err := json.Marshal(value)
	require.NoError(t, err)
	return document
}

func config(t *goldentest.T, value any) *modelv1.GenerateConfig {
	t.Helper()
	if value == nil {
		return &modelv1.GenerateConfig{}
	}
	c, err := chat.ParseConfig(encoded(t, value))
	require.NoError(t, err)
	return c
}

// counting counts the reports to an adaptive pool.
type counting struct {
	limit.Memory
	mu    sync.Mutex
	heard map[limit.Outcome]int
}

func (l *counting) Report(ctx context.Context, key string, r limit.Report) {
	l.mu.Lock()
	l.heard[r.Outcome]++
	l.mu.Unlock()
	l.Memory.Report(ctx, key, r)
}

// attempts are the provider's answers that a case lists.
func attempts(t *goldentest.T, list []any) []step {
	t.Helper()
	var steps []step
	for _, item := range list {
		switch item := item.(type) {
		case json.Number:
			status, err := item.Int64()
			require.NoError(t, err)
			steps = append(steps, failing(int(status)))
		case string:
			switch item {
			case "ok":
				steps = append(steps, says("ok"))
			case "hang":
				steps = append(steps, after(1000*time.Hour, says("late")))
			case "attribute": // a client library fails while a connection is closed
				steps = append(steps, func(context.Context, *provider.Request) (*provider.Response, error) {
					return nil, &provider.Error{Provider: "test", Class: provider.Transient, Message: "the connection was closed"}
				})
			default:
				t.Skipf("no driver for the answer %q", item)
			}
		}
	}
	return steps
}

// failing is an attempt that fails with a status. The recorded provider classifies a few statuses and takes all others
// for final.
func failing(status int) step {
	class := map[int]provider.Class{429: provider.RateLimit, 408: provider.Transient, 500: provider.Transient, 502: provider.Transient, 503: provider.Transient}[status]
	return func(context.Context, *provider.Request) (*provider.Response, error) {
		return nil, &provider.Error{Provider: "test", Class: class, Status: status}
	}
}

// outcome is what came of a case.
type outcome struct {
	calls  int
	waits  []any
	err    error
	limits map[limit.Outcome]int
}

func playRetries(t *goldentest.T, c goldentest.Case, random float64) (o outcome) {
	t.Helper()
	t.Bubble(func(t *goldentest.T) {
		list, _ := c.At("input", "provider").([]any)
		g := newRig(attempts(t, list)...)
		g.random = random
		limiter := &counting{heard: map[limit.Outcome]int{}}
		g.stages = g.pipeline(limiter)
		call := g.call(config(t, c.At("input", "config")))
		_, o.err = g.generate(t.Context(), call)
		o.calls, o.limits = g.outcome(call).Attempts, limiter.heard
		o.waits = []any{}
		for _, failed := range g.outcome(call).Failed {
			o.waits = append(o.waits, failed.GetWait().AsDuration().Seconds())
		}
	})
	return o
}

func TestGoldenRetrySchedule(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "retry-schedule", goldentest.Load(t, "core/retry-schedule.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		low := playRetries(t, c, 0)
		high := playRetries(t, c, math.Nextafter(1, 0))
		if len(low.waits) > 0 && lowestOnly(c) {
			high.waits = low.waits
		}
		got := map[string]any{
			"attempts": low.calls, "error": nil, "wait_low": low.waits, "wait_high": high.waits,
			"limiter_signals": map[string]any{"retry": low.limits[limit.RateLimited], "success": low.limits[limit.Clean]},
		}
		want, _ := c.At("expect").(map[string]any)
		if failure, _ := want["error"].(map[string]any); failure != nil {
			require.Error(t, low.err)
			e, ok := rpcerr.As(low.err)
			require.True(t, ok, low.err)
			got["error"] = map[string]any{"kind": failure["kind"], "last_status": statusOf(e)}
		} else {
			require.NoError(t, low.err)
		}
		t.Equal(want, got)
	})
}

// statusOf is the status of a failed attempt; nil if it ended without one.
func statusOf(e *rpcerr.Error) any {
	if status := e.Metadata["status"]; status != "" && status != "0" {
		return json.Number(status)
	}
	return nil
}

// lowestOnly reports whether a case was recorded without the highest random part: both lists are then the same.
func lowestOnly(c goldentest.Case) bool {
	low, _ := c.At("expect", "wait_low").([]any)
	high, _ := c.At("expect", "wait_high").([]any)
	return len(low) == len(high) && len(low) > 0 && low[0] == high[0]
}

func TestGoldenCacheExpiry(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "cache-expiry", goldentest.Load(t, "core/cache-expiry.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		switch c.Op() {
		case "parse_expiry":
			parseExpiry(t, c)
		case "cache_timeline":
			cacheTimeline(t, c)
		case "cache_stored":
			cacheStored(t, c)
		default:
			t.Skipf("no driver for %q", c.Op())
		}
	})
}

func parseExpiry(t *goldentest.T, c goldentest.Case) {
	t.Helper()
	text, _ := c.At("input").(string)
	d, err := respcache.ParseExpiry(text)
	if _, fails := c.At("expect", "from_string").(map[string]any); !fails {
		taken := map[bool]string{true: "policy", false: "refused"}[err == nil]
		t.Equal(c.At("expect", "from_string"), taken)
	}
	if _, failed := c.At("expect", "seconds").(map[string]any); failed {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	t.Equal(c.At("expect", "seconds"), d.Seconds())
}

func cacheTimeline(t *goldentest.T, c goldentest.Case) {
	t.Helper()
	t.Bubble(func(t *goldentest.T) {
		g := newRig(says("x"))
		start, called := time.Now(), []any{}
		times, _ := c.At("input", "at_seconds").([]any)
		for _, at := range times {
			seconds, err := at.(json.Number).Float64()
			require.NoError(t, err)
			time.Sleep(time.Until(start.Add(time.Duration(seconds * float64(time.Second)))))
			before := g.provider.count()
			_, err = g.generate(t.Context(), g.call(config(t, map[string]any{"cache": c.At("input", "policy")})))
			require.NoError(t, err)
			called = append(called, g.provider.count() > before)
		}
		t.Equal(c.At("expect"), map[string]any{"provider_called": called})
	})
}

func cacheStored(t *goldentest.T, c goldentest.Case) {
	t.Helper()
	output := &modelv1.ModelOutput{Model: "m"}
	reasons, _ := c.At("input", "stop_reasons").([]any)
	for _, reason := range reasons {
		word, _ := reason.(string)
		output.Choices = append(output.Choices, &modelv1.Choice{Message: chat.Assistant("x"), StopReason: chat.ProviderStopReason(word)})
	}
	g := newRig(func(context.Context, *provider.Request) (*provider.Response, error) {
		return &provider.Response{Output: output}, nil
	})
	for range 2 {
		_, err := g.generate(t.Context(), g.call(cached()))
		require.NoError(t, err)
	}
	t.Equal(c.At("expect"), map[string]any{"stored": g.provider.count() == 1})
}

func TestGoldenCacheSharing(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "cache-sharing", goldentest.Load(t, "core/cache-sharing.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		g := newRig(says("x"))
		var calls []int
		for _, name := range []string{"first", "second"} {
			_, err := g.generate(t.Context(), cachedCall(t, g, c, name))
			require.NoError(t, err)
			calls = append(calls, g.provider.count())
		}
		t.Equal(c.At("expect"), map[string]any{"first_calls_provider": calls[0] == 1, "shared": calls[1] == calls[0]})
	})
}

// pair is a case of two calls: a base, and what each of them changes. Values stay as they are written: the order of
// members counts.
type pair struct {
	Input struct {
		Base, First, Second map[string]json.RawMessage
	}
}

// serving is a provider with a server at an address.
type serving struct {
	provider.Provider
	server string
}

// Capabilities implements provider.Provider.
func (s *serving) Capabilities() provider.Capabilities {
	caps := s.Provider.Capabilities()
	caps.Server = s.server
	return caps
}

// cachedCall is the call of a case: its base with what the first or the second changes.
func cachedCall(t *goldentest.T, g *rig, c goldentest.Case, name string) *generate.Call {
	t.Helper()
	var form pair
	require.NoError(t, c.Decode(&form))
	changes := map[string]map[string]json.RawMessage{"first": form.Input.First, "second": form.Input.Second}[name]
	value := func(member string) json.RawMessage {
		raw, ok := changes[member]
		if !ok {
			raw = form.Input.Base[member]
		}
		if string(raw) == "null" {
			return nil
		}
		return raw
	}
	given := prepare.Conversation{Config: &modelv1.GenerateConfig{}}
	var err error
	if raw := value("config"); raw != nil {
		given.Config, err = chat.ParseConfig(raw)
		require.NoError(t, err)
	}
	policy, err := chat.ParseConfig(append(append([]byte(`{"cache":`), value("policy")...), '}'))
	require.NoError(t, err)
	given.Config = chat.Merge(given.Config, policy)
	if question := ""; json.Unmarshal(value("messages"), &question) == nil {
		given.Messages = []*modelv1.ChatMessage{chat.User(question)}
	} else {
		given.Messages, err = chat.ParseMessages(value("messages"))
		require.NoError(t, err)
	}
	if raw := value("tools"); raw != nil {
		given.Tools, err = chattest.Tools(raw)
		require.NoError(t, err)
	}
	if raw := value("tool_choice"); raw != nil {
		given.Choice, err = chattest.ToolChoice(raw)
		require.NoError(t, err)
	}
	call := g.call(nil)
	if raw := value("model"); raw != nil {
		call.Model = &provider.Model{Kind: g.model.Kind, Account: g.model.Account, Provider: g.provider}
		require.NoError(t, json.Unmarshal(raw, &call.Model.Name))
	}
	call.Conversation, err = prepare.Prepare(given, provider.Capabilities{})
	require.NoError(t, err)
	if raw := value("base_url"); raw != nil {
		at := &serving{Provider: g.provider}
		require.NoError(t, json.Unmarshal(raw, &at.server))
		call.Model = &provider.Model{Kind: g.model.Kind, Name: call.Model.Name, Account: g.model.Account, Provider: at}
	}
	if raw := value("epoch"); raw != nil {
		require.NoError(t, json.Unmarshal(raw, &call.Origin.Attribution.Epoch))
	}
	return call
}
