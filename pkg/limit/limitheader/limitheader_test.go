package limitheader_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/limit/limitheader"
)

var began = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func openai(most, remaining, reset string) http.Header {
	return header("x-ratelimit-limit-requests", most, "x-ratelimit-remaining-requests", remaining, "x-ratelimit-reset-requests", reset)
}

func TestWhatProvidersSay(t *testing.T) {
	t.Parallel()
	requests := func(after time.Duration) limit.Allowances {
		return limit.Allowances{Requests: limit.Allowance{Limit: 500, Remaining: 499, Full: began.Add(after)}}
	}
	for name, c := range map[string]struct {
		header http.Header
		want   limit.Allowances
	}{
		"nothing":        {http.Header{}, limit.Allowances{}},
		"milliseconds":   {openai("500", "499", "120ms"), requests(120 * time.Millisecond)},
		"parts":          {openai("500", "499", "1m8.64s"), requests(68640 * time.Millisecond)},
		"a number":       {openai("500", "499", "2.5"), requests(2500 * time.Millisecond)},
		"a time":         {openai("500", "499", "2026-11-30T12:00:07Z"), requests(7 * time.Second)},
		"none to wait":   {openai("500", "499", "0s"), requests(0)},
		"no reset":       {openai("500", "499", ""), limit.Allowances{}},
		"no limit":       {openai("", "499", "1s"), limit.Allowances{}},
		"words":          {openai("500", "many", "1s"), limit.Allowances{}},
		"no duration":    {openai("500", "499", "soon"), limit.Allowances{}},
		"a past":         {openai("500", "499", "-3s"), limit.Allowances{}},
		"another clock":  {openai("500", "499", "1796040000"), limit.Allowances{}},
		"no number":      {openai("500", "499", "NaN0"), limit.Allowances{}},
		"half of a time": {openai("500", "499", "2026-11-30T12"), limit.Allowances{}},
		"tokens alone": {
			header("x-ratelimit-limit-tokens", "160000", "x-ratelimit-remaining-tokens", "159976", "x-ratelimit-reset-tokens", "9ms"),
			limit.Allowances{Tokens: limit.Allowance{Limit: 160000, Remaining: 159976, Full: began.Add(9 * time.Millisecond)}},
		},
		"Anthropic's": {
			header(
				"anthropic-ratelimit-requests-limit", "50", "anthropic-ratelimit-requests-remaining", "49",
				"anthropic-ratelimit-requests-reset", "2026-11-30T12:00:02Z",
				"anthropic-ratelimit-input-tokens-limit", "30000", "anthropic-ratelimit-input-tokens-remaining", "0",
				"anthropic-ratelimit-input-tokens-reset", "2026-11-30T12:01:00Z",
				"anthropic-ratelimit-output-tokens-limit", "8000", "anthropic-ratelimit-output-tokens-remaining", "7000",
				"anthropic-ratelimit-output-tokens-reset", "2026-11-30T12:00:08Z",
			),
			limit.Allowances{
				Requests: limit.Allowance{Limit: 50, Remaining: 49, Full: began.Add(2 * time.Second)},
				Input:    limit.Allowance{Limit: 30000, Remaining: 0, Full: began.Add(time.Minute)},
				Output:   limit.Allowance{Limit: 8000, Remaining: 7000, Full: began.Add(8 * time.Second)},
			},
		},
	} {
		got, said := limitheader.Read(c.header, began)
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.want != limit.Allowances{}, said, name)
	}
}

// It is read for each answer: without memory of its own.
func TestAnAnswerIsReadInPlace(t *testing.T) {
	h := openai("500", "499", "120ms")
	assert.Zero(t, testing.AllocsPerRun(100, func() { limitheader.Read(h, began) }))
}

func BenchmarkRead(b *testing.B) {
	for name, h := range map[string]http.Header{"nothing": {}, "requests": openai("500", "499", "120ms")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				limitheader.Read(h, began)
			}
		})
	}
}
