package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/report"
)

var sample = report.Report{
	Date:    time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
	Machine: report.Machine{Cores: 2, OS: "linux", Arch: "amd64", Kernel: "6.1", Go: "go1.26.0", Load: "0.10"},
	Took:    "2m3s",
	Benchmarks: []report.Benchmark{
		{Name: "steps", Title: "Steps", How: "By counting.", Figures: []report.Figure{{
			Name: "steps", Baseline: "a quarter of appends", Measured: 1999.6, BaselineMeasured: 4000, Unit: "/s", Ratio: paired.Ratio{Median: 0.5, Low: 0.49, High: 0.512}, Means: "Much.",
			Goals: []report.Goal{
				report.Reaches(1999.6, 2000, "/s"), report.AtLeast(paired.Ratio{Median: 0.5}, 0.4), report.AtMost(paired.Ratio{Median: 0.5}, 0.45).AsAim(),
			},
		}}},
		{Name: "exec", Title: "Exec", How: "Side by side.", NotRun: "this machine does not isolate"},
	},
}

func TestTheReportSaysWhatIsMetAndWhatIsNot(t *testing.T) {
	t.Parallel()
	got := report.Markdown(sample)
	assert.Contains(t, got, "Measured on 2026-03-04 in 2m3s, on 2 cores, linux/amd64, kernel 6.1, go1.26.0, load before the run 0.10.\n")
	assert.Contains(t, got, "\n| steps | 2,000/s | a quarter of appends: 4,000/s | 0.50 (0.49 to 0.51) | ≥ 2,000/s: **not met**; ratio ≥ 0.4: met; aim ratio ≤ 0.45: not yet |\n")
	assert.Contains(t, got, "\n- **steps**: Much.\n")
	assert.Contains(t, got, "\nNot measured: this machine does not isolate.\n")
	assert.Equal(t, 1, sample.Missed(), "an aim is no goal")

	var text strings.Builder
	require.NoError(t, report.Text(&text, sample))
	assert.Contains(t, text.String(), "≥ 2,000/s: not met")
	assert.Contains(t, text.String(), "not measured: this machine does not isolate")
}

func TestOnlyTheResultsOfADocumentAreReplaced(t *testing.T) {
	t.Parallel()
	const head, tail = "# Title\n\n<!-- results: written by make bench -->", "<!-- end of results -->\n\nAfter.\n"
	once, err := report.Replace([]byte(head+"old"+tail), sample)
	require.NoError(t, err)
	assert.Equal(t, head+"\n\n"+report.Markdown(sample)+"\n"+tail, string(once))
	twice, err := report.Replace(once, sample)
	require.NoError(t, err)
	assert.Equal(t, string(once), string(twice))
	_, err = report.Replace([]byte("# Title\n"), sample)
	require.ErrorContains(t, err, "no place for results")
}

func TestThisMachineIsDescribed(t *testing.T) {
	t.Parallel()
	m := report.ThisMachine()
	assert.Positive(t, m.Cores)
	assert.NotEmpty(t, m.Kernel)
}
