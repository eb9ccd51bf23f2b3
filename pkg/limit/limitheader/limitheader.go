// Package limitheader reads the rate limits that providers report in the headers of answers: OpenAI and the services
// that speak its formats, and Anthropic.
package limitheader

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/limit"
)

// names are the headers of one limit, in their canonical form.
type names struct{ limit, remaining, reset string }

var (
	requests = names{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"}
	tokens   = names{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"}

	anthropicRequests = anthropic("Requests")
	anthropicTokens   = anthropic("Tokens")
	anthropicInput    = anthropic("Input-Tokens")
	anthropicOutput   = anthropic("Output-Tokens")
)

func anthropic(of string) names {
	prefix := "Anthropic-Ratelimit-" + of
	return names{prefix + "-Limit", prefix + "-Remaining", prefix + "-Reset"}
}

// Read returns the rate limits that the headers of an answer report; ok is false if there are none. Durations in
// headers count from began, when the call began. A limit with a header that is missing or cannot be read is left out.
func Read(h http.Header, began time.Time) (a limit.Allowances, ok bool) {
	a.Requests, a.Tokens = read(h, &requests, began), read(h, &tokens, began)
	if a.Requests == (limit.Allowance{}) && a.Tokens == (limit.Allowance{}) {
		a.Requests, a.Tokens = read(h, &anthropicRequests, began), read(h, &anthropicTokens, began)
		a.Input, a.Output = read(h, &anthropicInput, began), read(h, &anthropicOutput, began)
	}
	return a, a != (limit.Allowances{})
}

func read(h http.Header, of *names, began time.Time) limit.Allowance {
	remaining := h[of.remaining]
	if len(remaining) == 0 { // Most services say nothing.
		return limit.Allowance{}
	}
	var a limit.Allowance
	var whole, left, timed bool
	a.Limit, whole = number(first(h[of.limit]))
	a.Remaining, left = number(remaining[0])
	a.Full, timed = at(first(h[of.reset]), began)
	if !whole || !left || !timed {
		return limit.Allowance{}
	}
	return a
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func number(text string) (float64, bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// longest is the longest reset time that is given as a number, in seconds: larger numbers are times of another clock.
const longest = 7 * 24 * 3600

// at returns a time that is given as one (RFC 3339), as a duration such as `1m30s` or `500ms`, or as a number of
// seconds.
func at(text string, began time.Time) (time.Time, bool) {
	if text == "" {
		return time.Time{}, false
	}
	switch last := text[len(text)-1]; {
	case strings.Contains(text, "T"):
		t, err := time.Parse(time.RFC3339, text)
		return t, err == nil
	case last >= '0' && last <= '9':
		seconds, ok := number(text)
		if !ok || !(seconds >= 0 && seconds <= longest) {
			return time.Time{}, false
		}
		return began.Add(time.Duration(seconds * float64(time.Second))), true
	default:
		d, err := time.ParseDuration(text)
		return began.Add(d), err == nil && d >= 0
	}
}
