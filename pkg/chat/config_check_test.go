package chat_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// A word that no option has would have each provider do something of its own: switch thinking off, or raise it.
func TestWordsThatMeanNothingAreRefused(t *testing.T) {
	t.Parallel()
	for fault, c := range map[string]*modelv1.GenerateConfig{
		`config.reasoning_effort: "hard" is none of none, minimal, low, medium, high, xhigh, max`: {ReasoningEffort: new("hard")},
		`config.reasoning_effort: "HIGH" is none of`:                                              {ReasoningEffort: new("HIGH")},
		`config.effort: "none" is none of low, medium, high, xhigh, max`:                          {Effort: new("none")},
		`config.verbosity: "max" is none of low, medium, high`:                                    {Verbosity: new("max")},
		`config.reasoning_mode: "fast" is none of standard, pro`:                                  {ReasoningMode: new("fast")},
		`config.reasoning_summary: "long" is none of none, concise, detailed, auto`:               {ReasoningSummary: new("long")},
	} {
		require.ErrorContains(t, chat.CheckConfig(c), fault)
	}
	for _, c := range []*modelv1.GenerateConfig{
		{ReasoningEffort: new("none"), Effort: new("max"), Verbosity: new("low"), ReasoningMode: new("pro"), ReasoningSummary: new("none")},
		{ReasoningEffort: new(""), SystemMessage: new("any words")},
	} {
		assert.NoError(t, chat.CheckConfig(c), "%v", c)
	}
}

// A header that cannot be sent would fail each attempt, and one that the connection sets itself would be dropped.
func TestHeadersThatCannotBeSentAreRefused(t *testing.T) {
	t.Parallel()
	for header, fault := range map[[2]string]string{
		{"X-Own", "a\nb"}:             `config.extra_headers.values["X-Own"]: has a value with a control character`,
		{"X Own", "a"}:                `config.extra_headers.values["X Own"]: is no name of a header`,
		{"", "a"}:                     `config.extra_headers.values[""]: is no name of a header`,
		{"host", "a.example"}:         `config.extra_headers.values["host"]: is the connection's own`,
		{"Content-Length", "5"}:       "is the connection's own",
		{"Transfer-Encoding", "x"}:    "is the connection's own",
		{"accept-encoding", "gzip"}:   "is the connection's own",
		{"X-Own", "tab\tand words é"}: "",
		{"anthropic_beta", ""}:        "",
	} {
		err := chat.CheckConfig(&modelv1.GenerateConfig{ExtraHeaders: &modelv1.HeaderMap{Values: map[string]string{header[0]: header[1]}}})
		if fault == "" {
			assert.NoError(t, err, "%q", header)
		} else {
			assert.ErrorContains(t, err, fault)
		}
	}
}

func TestNumbersThatMeanNothingAreRefused(t *testing.T) {
	t.Parallel()
	nan, zero := math.NaN(), new(int32(0))
	for fault, c := range map[string]*modelv1.GenerateConfig{
		"config.temperature: must be a finite number":          {Temperature: &nan},
		"config.top_p: must be a finite number":                {TopP: new(math.Inf(1))},
		"config.frequency_penalty: must be a finite number":    {FrequencyPenalty: new(math.Inf(-1))},
		"config.logit_bias: must be a finite number":           {LogitBias: &modelv1.LogitBias{Values: map[int64]float64{1: 1, 2: nan}}},
		"config.adaptive_connections: must be a finite number": {AdaptiveConnections: &modelv1.AdaptiveConnections{CooldownSeconds: &nan}},
		"config.timeout: must be a finite number":              {Timeout: &nan},
		"config.timeout: is -3, must be above 0":               {Timeout: new(-3.0)},
		"config.attempt_timeout: is 0, must be above 0":        {AttemptTimeout: new(0.0)},
		"config.stream_idle_timeout: is -1, must be above 0":   {StreamIdleTimeout: new(-1.0)},
		"config.max_tokens: is -3, must be above 0":            {MaxTokens: new(int64(-3))},
		"config.max_connections: is 0, must be above 0":        {MaxConnections: zero},
		"config.num_choices: is 0, must be above 0":            {NumChoices: zero},
		"config.best_of: is 0, must be above 0":                {BestOf: zero},
		"config.max_retries: is -1, must not be negative":      {MaxRetries: new(int32(-1))},
		"config.prompt_logprobs: is 21, must be from 1 to 20":  {PromptLogprobs: new(int32(21))},
		"config.prompt_logprobs: is 0, must be from 1 to 20":   {PromptLogprobs: zero},
	} {
		require.ErrorContains(t, chat.CheckConfig(c), fault)
	}
	for _, c := range []*modelv1.GenerateConfig{
		nil,
		{},
		{MaxRetries: zero, MaxToolOutput: new(int64(-1)), TopK: new(int32(-1)), Temperature: new(-1.0), Seed: new(int64(-7)), ReasoningTokens: new(int64(0))},
		{Timeout: new(0.5), LogitBias: &modelv1.LogitBias{Values: map[int64]float64{5: -100}}},
	} {
		assert.NoError(t, chat.CheckConfig(c), "%v", c)
	}
}
