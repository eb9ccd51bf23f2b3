package retry_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/retry"
)

func TestGoldenRetryAfter(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "retry-after", goldentest.Load(t, "core/retry-after.jsonl"), func(t *goldentest.T, c goldentest.Case) {
		var form struct {
			Input struct {
				Headers map[string]string `json:"headers"`
				Now     time.Time         `json:"now"`
			} `json:"input"`
		}
		require.NoError(t, c.Decode(&form))
		headers := http.Header{}
		for name, value := range form.Input.Headers {
			headers.Set(name, value)
		}
		wait := retry.After(headers, form.Input.Now)
		if wait == 0 {
			t.Equal(c.At("expect"), nil)
			return
		}
		t.Equal(c.At("expect"), wait.Seconds())
	})
}

func TestAfterReadsTheFormsOfServers(t *testing.T) {
	t.Parallel()
	now := time.Date(2029, 12, 31, 23, 59, 0, 0, time.UTC)
	cases := []struct {
		value string
		want  time.Duration
	}{
		{"1m", time.Minute},
		{"1m 30s", 90 * time.Second},
		{"1 m", time.Minute},
		{"1h1h", 2 * time.Hour},
		{"500ms", 500 * time.Millisecond},
		{"1M30S", 0},
		{"1m30", 0},
		{".5s", 0},
		{"5, 6", 0},
		{"nan", 0},
		{"1e400", 0},
		{"1e300", 1 << 62},
		{"2030-01-01", time.Minute},
		{"2030-01-01T00:00", time.Minute},
		{"20300101T000000Z", time.Minute},
		{"2030-01-01 00:00:00", time.Minute},
		{"Tue, 01 Jan 2030 00:00:00", time.Minute},
		{"Tue, 01 Jan 2030 01:00:00 +0100", time.Minute},
		{"Tuesday, 01-Jan-30 00:00:00 GMT", time.Minute},
		{"Tue, 1 Jan 2030 0:00:00 GMT", time.Minute},
		{"Tue, 01 Jan 30 00:00:00 GMT", time.Minute},
		{"tue, 01 jan 2030 00:00:00 utc", time.Minute},
		{"Tue, 01 Jan 2030 00:00:00 Z", time.Minute},
		{"Mon, 31 Dec 2029 19:00:00 EST", time.Minute},
		{"Mon, 31 Dec 2029 17:00:00 PDT", time.Minute},
		{"Tue, 01 Jan 2030 00:00:00 +0000 (UTC)", time.Minute},
		{"Tue,01 Jan 2030 00:00 GMT", time.Minute},
		{"Tue, 01 Jan 2030 0:0:0 GMT", time.Minute},
		{"Tue, 32 Jan 2030 00:00:00 GMT", 0},
		{"2030-01-01T00:00Z", time.Minute},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, retry.After(http.Header{"Retry-After": {c.value}}, now), c.value)
	}
}

func FuzzAfter(f *testing.F) {
	for _, seed := range []string{"5", "1m30s", "Thu, 01 Jan 2026 00:00:30 GMT", "2026-01-01T00:00:45Z", "1e999", "-0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if retry.After(http.Header{"Retry-After": {value}, "X-Ratelimit-Reset-Tokens": {value}}, time.Unix(0, 0)) < 0 {
			t.Errorf("%q asks for a negative wait", value)
		}
	})
}

func TestAScheduleDoublesUpToItsBound(t *testing.T) {
	t.Parallel()
	low, high := retry.Default(), retry.Default()
	low.Random = func() float64 { return 0 }
	high.Random = func() float64 { return math.Nextafter(1, 0) }
	for n, want := range map[int]time.Duration{1: 3 * time.Second, 2: 6 * time.Second, 5: 48 * time.Second, 10: 1536 * time.Second} {
		assert.Equal(t, want, low.Delay(n, 0))
		assert.InDelta(t, (want + 3*time.Second).Seconds(), high.Delay(n, 0).Seconds(), 1e-6)
	}
	assert.Equal(t, 30*time.Minute, low.Delay(11, 0))
	assert.Equal(t, 30*time.Minute, low.Delay(1_000_000, 0), "a wait never overflows")
}

func TestWhatTheServerAsksForTakesThePlaceOfTheSchedule(t *testing.T) {
	t.Parallel()
	b := retry.Default()
	b.Random = func() float64 { return 0.5 }
	assert.Equal(t, 10500*time.Millisecond, b.Delay(7, 10*time.Second))
	assert.Equal(t, 30*time.Minute, b.Delay(1, 24*time.Hour))
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	assert.True(t, retry.Policy{}.Allows(1_000, 24*time.Hour))
	assert.False(t, retry.Policy{MaxRetries: new(0)}.Allows(1, 0))
	assert.True(t, retry.Policy{MaxRetries: new(2)}.Allows(2, 0))
	assert.False(t, retry.Policy{MaxRetries: new(2)}.Allows(3, 0))
	assert.False(t, retry.Policy{Timeout: new(time.Duration(0))}.Allows(1, 0))
	assert.True(t, retry.Policy{Timeout: new(time.Minute)}.Allows(1, time.Minute-1))
	assert.False(t, retry.Policy{Timeout: new(time.Minute)}.Allows(1, time.Minute))
}
