package retry

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/seconds"
)

// resetHeaders give the time when a rate limit ends; they count if Retry-After is missing. The names are those of
// OpenAI and Anthropic.
var resetHeaders = []string{
	"X-Ratelimit-Reset-Requests",
	"X-Ratelimit-Reset-Tokens",
	"Anthropic-Ratelimit-Requests-Reset",
	"Anthropic-Ratelimit-Tokens-Reset",
	"Anthropic-Ratelimit-Input-Tokens-Reset",
	"Anthropic-Ratelimit-Output-Tokens-Reset",
}

// After returns the delay that a server's headers ask for, from now, or zero if they have none. Retry-After has
// precedence; if it is absent, unreadable or not positive, the longest of the headers about rate limits counts. A value
// is a number of seconds, a duration such as `1m30s` or `500ms`, an HTTP date or an ISO time; a time without a zone is
// UTC.
func After(headers http.Header, now time.Time) time.Duration {
	if wait := parseWait(headers.Get("Retry-After"), now); wait > 0 {
		return wait
	}
	longest := time.Duration(0)
	for _, name := range resetHeaders {
		longest = max(longest, parseWait(headers.Get(name), now))
	}
	return longest
}

// parseWait parses one value; an unreadable value or one in the past is zero.
func parseWait(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return positive(f)
	}
	if wait, ok := parseDuration(text); ok {
		return wait
	}
	if at, ok := parseTime(text); ok {
		return max(0, at.Sub(now))
	}
	return 0
}

// positive turns a positive finite number of seconds into a duration.
func positive(f float64) time.Duration {
	if !(f > 0) || math.IsInf(f, 0) {
		return 0
	}
	return seconds.Duration(f)
}

var (
	durationForm = regexp.MustCompile(`^(?:\d+(?:\.\d+)?\s*(?:ms|s|m|h|d)\s*)+$`)
	durationPart = regexp.MustCompile(`(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)`)
	durationUnit = map[string]float64{"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
)

func parseDuration(text string) (time.Duration, bool) {
	if !durationForm.MatchString(text) {
		return 0, false
	}
	total := 0.0
	for _, part := range durationPart.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(part[1], 64)
		if err != nil {
			return 0, false
		}
		total += n * durationUnit[part[2]]
	}
	return positive(total), true
}

// timeForms are the ways in which servers write times, beside the three of HTTP.
var timeForms = []string{
	time.RFC3339Nano,
	"2006-01-02T15:04:05.999999999",
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04",
	"2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999",
	"2006-01-02",
	"20060102T150405Z0700",
}

// dateForms are the ways in which they write dates of mail, with a two-digit year too, without seconds, and without a
// zone.
var dateForms = []string{
	"2 Jan 2006 15:4:5", "2 Jan 06 15:4:5", "2 Jan 2006 15:4:5 -0700", "2 Jan 06 15:4:5 -0700",
	"2 Jan 2006 15:4", "2 Jan 06 15:4", "2 Jan 2006 15:4 -0700", "2 Jan 06 15:4 -0700",
}

// zones are the hours of the zones that RFC 5322 names; any other name is UTC, as that RFC wants it.
var zones = map[string]int{"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7}

var (
	weekday  = regexp.MustCompile(`^[A-Za-z]+(,\s*|\s+)`)
	comment  = regexp.MustCompile(`\s*\([^()]*\)$`) // such as the zone's name after its hours
	zoneName = regexp.MustCompile(`\s+([A-Za-z]+)$`)
)

// parseDate parses a date of mail. The name of its day is not compared with the date.
func parseDate(text string) (time.Time, bool) {
	text = comment.ReplaceAllString(weekday.ReplaceAllString(text, ""), "")
	hours := 0
	if zone := zoneName.FindStringSubmatch(text); zone != nil {
		text, hours = strings.TrimSuffix(text, zone[0]), zones[strings.ToUpper(zone[1])]
	}
	for _, form := range dateForms {
		if at, err := time.Parse(form, text); err == nil {
			return at.Add(-time.Duration(hours) * time.Hour), true
		}
	}
	return time.Time{}, false
}

func parseTime(text string) (time.Time, bool) {
	if at, err := http.ParseTime(text); err == nil {
		return at, true
	}
	if at, ok := parseDate(text); ok {
		return at, true
	}
	for _, form := range timeForms {
		if at, err := time.Parse(form, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}
