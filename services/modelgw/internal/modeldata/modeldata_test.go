package modeldata_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
)

func TestGoldenModelInfo(t *testing.T) {
	t.Parallel()
	cases := slices.DeleteFunc(goldentest.Load(t, "core/model-names.jsonl"), func(c goldentest.Case) bool { return c.Op() != "model_info" })
	goldentest.Run(t, "model-info", cases, func(t *goldentest.T, c goldentest.Case) {
		name, _ := c.At("input").(string)
		m, known := modeldata.Default().Find(name)
		if !known {
			t.Equal(c.At("expect"), nil)
			return
		}
		found := map[string]any{"organization": m.Organization, "model": m.Display}
		for member, tokens := range map[string]int64{"context_length": m.Context, "output_tokens": m.Output} {
			if tokens != 0 {
				found[member] = tokens
			}
		}
		t.Equal(c.At("expect"), found)
	})
}

// efforts are the efforts of reasoning that a model may have by default.
var efforts = []string{"", "none", "minimal", "low", "medium", "high", "xhigh", "max", "adaptive", "fixed"}

func TestTheDataIsSane(t *testing.T) {
	t.Parallel()
	d := modeldata.Default()
	for _, s := range []modeldata.Source{d.Facts, d.Charges, d.Retirements} {
		assert.NotEmpty(t, s.Source)
		day(t, s.AsOf)
	}
	require.GreaterOrEqual(t, len(d.Organizations), 10)
	for _, o := range d.Organizations {
		assert.Equal(t, strings.ToLower(o.Key), o.Key)
		assert.NotEmpty(t, o.Display, o.Key)
		assert.NotEmpty(t, o.Models, o.Key)
		for _, m := range o.Models {
			t.Run(m.Key, func(t *testing.T) {
				assert.Regexp(t, `^[a-z0-9-]+/[A-Za-z0-9][A-Za-z0-9._-]*$`, m.Key)
				assert.NotEmpty(t, m.Display)
				for _, name := range m.Also {
					assert.Regexp(t, `^[A-Za-z0-9][A-Za-z0-9._@-]*$`, name)
				}
				for _, tokens := range []int64{m.Context, m.Input, m.Output} {
					assert.True(t, tokens == 0 || tokens >= 1000 && tokens <= 20_000_000, tokens)
				}
				assert.LessOrEqual(t, m.Input, m.Context)
				assert.LessOrEqual(t, m.Output, m.Context)
				if m.Released != "" {
					day(t, m.Released)
					assert.LessOrEqual(t, m.Released, d.Facts.AsOf)
				}
				if m.Cutoff != "" {
					day(t, m.Cutoff)
				}
				if m.Retired != "" {
					day(t, m.Retired)
					assert.Greater(t, m.Retired, m.Released)
				}
				assert.Contains(t, efforts, m.Effort)
				sane(t, m.Prices)
			})
		}
	}
}

// A list is without models that their vendor has shut down, from the day on which it does so.
func TestRetiredModelsAreNotCurrent(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		moment, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return moment
	}
	d := modeldata.Default()
	claude := []string{"claude-sonnet-4-0", "claude-sonnet-4-6", "claude-of-tomorrow"}
	assert.Equal(t, claude, d.Current("anthropic", claude, at("2026-06-14T23:59:59Z")))
	assert.Equal(t, claude[1:], d.Current("anthropic", claude, at("2026-06-15T00:00:00Z")))
	assert.Equal(t, claude, d.Current("anthropic", claude, at("2026-06-15T01:00:00+02:00")), "the day is that of UTC")
	assert.Equal(t, "claude-sonnet-4-0", claude[0], "the given list stays")
	assert.Empty(t, d.Current("google", []string{"gemini-3-pro-preview", "gemini-2.0-flash", "gemini-2.5-pro"}, at("2026-12-01T00:00:00Z")))
	assert.Empty(t, d.Current("grok", []string{"grok-3", "grok-4", "grok-4-fast"}, at("2026-11-30T00:00:00Z")))
	elsewhere := []string{"anthropic.claude-sonnet-4-20250514-v1:0"}
	assert.Equal(t, elsewhere, d.Current("bedrock", elsewhere, at("2026-12-01T00:00:00Z")), "other hosts have their own days")
	assert.Equal(t, claude, (*modeldata.Data)(nil).Current("anthropic", claude, at("2026-12-01T00:00:00Z")))
}

func day(t *testing.T, text string) {
	t.Helper()
	_, err := time.Parse(time.DateOnly, text)
	assert.NoError(t, err)
}

// sane checks prices: output costs at least as much as input, a cache at most as much as a little over input, and a
// long call at least as much as a short one.
func sane(t *testing.T, p *modeldata.Prices) {
	t.Helper()
	if p == nil {
		return
	}
	assert.Greater(t, p.Input, 0.0)
	assert.GreaterOrEqual(t, p.Output, p.Input)
	assert.Less(t, p.Output, 1000.0)
	if p.InputCacheRead != nil {
		assert.Greater(t, *p.InputCacheRead, 0.0)
		assert.Less(t, *p.InputCacheRead, p.Input)
	}
	if p.InputCacheWrite != nil {
		assert.GreaterOrEqual(t, *p.InputCacheWrite, p.Input)
		assert.LessOrEqual(t, *p.InputCacheWrite, 2*p.Input)
	}
	if p.Long != nil {
		assert.GreaterOrEqual(t, p.Long.Above, int64(32_000))
		assert.GreaterOrEqual(t, p.Long.Input, p.Input)
		assert.GreaterOrEqual(t, p.Long.Output, p.Output)
		assert.Nil(t, p.Long.Long)
		assert.Empty(t, p.Long.Modes)
		sane(t, p.Long)
	}
	for mode, prices := range p.Modes {
		assert.Contains(t, []string{"flex", "priority", "fast", "us", "fast us"}, mode)
		assert.Equal(t, mode == "flex", prices.Input < p.Input, "%s costs %v beside %v", mode, prices.Input, p.Input)
		assert.Equal(t, prices.Input < p.Input, prices.Output < p.Output)
		assert.Empty(t, prices.Modes)
		sane(t, prices)
	}
}

func TestNamesOfHostsAndSnapshotsAreFound(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{
		"openai/gpt-4o":            "openai/gpt-4o",
		"OpenAI/GPT_4o":            "openai/gpt-4o",
		"gpt-4o":                   "openai/gpt-4o",
		"together/zai-org/GLM-4.6": "zai-org/GLM-4.6",
		"openrouter/z-ai/glm-5.3":  "zai-org/glm-5.3",
		"fireworks/accounts/fireworks/models/glm-5p3":         "fireworks/glm-5p3",
		"vllm/thinkingmachines/Inkling":                       "thinkingmachines/Inkling",
		"inkling":                                             "thinkingmachines/Inkling",
		"inkling-2099-01-01":                                  "thinkingmachines/Inkling",
		"vllm/mine/glm-4.6:1":                                 "zai-org/GLM-4.6",
		"openai/gpt-4o-2099-01-01":                            "openai/gpt-4o",
		"openai/gpt-4o-2024-05-13":                            "openai/gpt-4o-2024-05-13",
		"azureai/gpt-4o":                                      "openai/gpt-4o",
		"anthropic/vertex/claude-opus-4-5":                    "anthropic/claude-opus-4-5",
		"anthropic/claude-opus-4-5@20251101":                  "anthropic/claude-opus-4-5",
		"anthropic/bedrock/claude-sonnet-4-5":                 "anthropic/claude-sonnet-4-5",
		"anthropic/claude-sonnet-4-0":                         "anthropic/claude-sonnet-4",
		"bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0": "anthropic/claude-haiku-4-5",
		"bedrock/amazon.nova-pro-v1:0":                        "amazon/nova-pro",
		"together/meta-llama/Llama-3.3-70B-Instruct":          "meta-llama/Llama-3.3-70B-Instruct",
		"openrouter/x-ai/grok-4":                              "grok/grok-4",
		"openai-api/moonshot/kimi-k3":                         "moonshotai/kimi-k3",
		"openai-api/mine/deepseek-v4-pro":                     "deepseek/deepseek-v4-pro",
		"openai/gpt-4o-tts":                                   "",
		"openai/gpt-4o-mini-realtime":                         "",
		"openai/claude-opus-4-5":                              "",
		"openai/":                                             "",
		"/":                                                   "",
		"":                                                    "",
		"mockllm/model":                                       "",
	} {
		m, known := modeldata.Default().Find(name)
		if key == "" {
			assert.False(t, known, name)
			continue
		}
		if assert.True(t, known, name) {
			assert.Equal(t, key, m.Key, name)
		}
	}
}

// A price holds for names that the data contains letter for letter, at the vendor's own API.
func TestPricesAreNeverGuessed(t *testing.T) {
	t.Parallel()
	prices := modeldata.Default().Prices()
	for _, name := range []string{"openai/gpt-4o", "openai/gpt-4o-mini-2024-07-18", "anthropic/claude-opus-4-5-20251101", "bedrock/amazon.nova-pro-v1:0", "moonshot/kimi-k3"} {
		assert.Contains(t, prices, name)
	}
	for _, name := range []string{
		"openai/gpt-4o-2099-01-01", "openai/GPT-4o", "openai/azure/gpt-4o", "azureai/gpt-4o", "openrouter/openai/gpt-4o", "moonshotai/kimi-k3", "bedrock/anthropic.claude-opus-4-8",
		"bedrock/eu.amazon.nova-pro-v1:0",
	} {
		assert.NotContains(t, prices, name)
	}
	long := prices["openai/gpt-5.4"]
	assert.Equal(t, int64(272_000), long.GetLongInputTokens())
	assert.Equal(t, []float64{5, 22.5, 5, 0.5}, []float64{
		long.GetLongInput().GetInput(), long.GetLongInput().GetOutput(), long.GetLongInput().GetInputCacheWrite(), long.GetLongInput().GetInputCacheRead(),
	}, "what is left out is the price of input")
	assert.Equal(t, []float64{1.25, 7.5, 2.5, 11.25}, []float64{
		long.GetModes()["flex"].GetInput(), long.GetModes()["flex"].GetOutput(), long.GetModes()["flex"].GetLongInput().GetInput(), long.GetModes()["flex"].GetLongInput().GetOutput(),
	})
	assert.Nil(t, long.GetModes()["priority"].GetLongInput(), "the vendor has none")
	assert.InDelta(t, 2*prices["anthropic/claude-opus-5"].GetOutput(), prices["anthropic/claude-opus-5"].GetModes()["fast"].GetOutput(), 0)
	for _, model := range []string{"anthropic/claude-opus-4-8", "anthropic/claude-opus-5", "anthropic/claude-opus-5-5"} {
		plain, both := prices[model], prices[model].GetModes()["fast us"]
		assert.InDelta(t, 2*1.1*plain.GetInput(), both.GetInput(), 1e-9, "the multipliers of the speed and of the region apply to each other")
		assert.InDelta(t, 2*1.1*plain.GetOutput(), both.GetOutput(), 1e-9)
		assert.InDelta(t, 2*1.1*plain.GetInputCacheWrite(), both.GetInputCacheWrite(), 1e-9)
		assert.InDelta(t, 2*1.1*plain.GetInputCacheRead(), both.GetInputCacheRead(), 1e-9)
	}
}

func TestDataThatIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	for document, fault := range map[string]string{
		`organizations: [{key: a, models: [{name: m}, {name: M}]}]`:                "the name is that of a/m too",
		`organizations: [{key: a, models: [{name: m, also: [m_2]}, {name: m-2}]}]`: "the name is that of a/m too",
		`organizations: [{key: a, models: [{name: m, contxt: 5}]}]`:                "contxt",
		"organizations: []\n---\na: 1":                                             "more follows",
	} {
		_, err := modeldata.Parse([]byte(document))
		assert.ErrorContains(t, err, fault, document)
	}
}

func FuzzFind(f *testing.F) {
	f.Add("openai/azure/gpt-4o-v1:0")
	f.Add("bedrock/us.anthropic.claude-x@1")
	f.Fuzz(func(t *testing.T, name string) {
		if m, known := modeldata.Default().Find(name); known != (m != nil) {
			t.Fatal("known without a model, or the reverse")
		}
	})
}

// A model in a cloud is the model of its maker, whatever form the cloud gives its name.
func TestModelsInCloudsAreThoseOfTheirMakers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"anthropic/bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0":    "anthropic/claude-sonnet-4-5",
		"anthropic/bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0": "anthropic/claude-sonnet-4-5",
		"anthropic/vertex/claude-sonnet-4-5@20250929":                    "anthropic/claude-sonnet-4-5",
		"google/vertex/gemini-2.5-flash":                                 "google/gemini-2.5-flash",
		"openai/bedrock/gpt-5":                                           "openai/gpt-5",
		"openai/bedrock/openai.gpt-5":                                    "openai/gpt-5",
	} {
		found, ok := modeldata.Default().Find(name)
		require.True(t, ok, name)
		assert.Equal(t, want, found.Key, name)
	}
}
