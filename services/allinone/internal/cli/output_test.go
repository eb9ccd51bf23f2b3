package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// A metric of groups has as many values as the samples have groups.
func TestScoresThatAreWiderThanTheTerminalAreListed(t *testing.T) {
	t.Parallel()
	score := &agentv1.ScoreResult{Name: "match", ScoredSamples: 24}
	for i := range 12 {
		score.Metrics = append(score.Metrics, &agentv1.MetricResult{Key: fmt.Sprintf("topic Number %d", i), Value: new(float64(i) / 16)})
	}
	for width, listed := range map[int]bool{0: false, 60: true, 400: false} {
		var out bytes.Buffer
		a := &app{Process: Process{Stdout: &out, StdoutWidth: func() int { return width }}}
		a.showScores([]*agentv1.ScoreResult{score, {Name: "f1", ScoredSamples: 3, Metrics: []*agentv1.MetricResult{{Key: "mean"}}}})
		for i := range 12 {
			assert.Contains(t, out.String(), fmt.Sprintf("%.3f", float64(i)/16), "%d columns", width)
		}
		assert.NotContains(t, out.String(), "…")
		assert.Equal(t, listed, strings.Contains(out.String(), "match   24       topic Number 11  0.688\n"), out.String())
		assert.Equal(t, listed, strings.Contains(out.String(), "f1      3        mean             –\n"), out.String())
	}
}

// full is a disk without room.
type full struct{ cause error }

func (f full) Write([]byte) (int, error) { return 0, f.cause }

func TestResultsThatCannotBeWrittenAreAnError(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	code := Main(t.Context(), Process{
		Name: "evalfleet", Stdout: full{errors.New("write /dev/stdout: no space left on device")}, Stderr: &said, Env: func(string) (string, bool) { return "", false },
		StdoutWidth: func() int { return 0 }, StderrWidth: func() int { return 0 },
	}, []string{"version"})
	assert.Equal(t, exitFailed, code)
	assert.Equal(t, "evalfleet: write /dev/stdout: no space left on device\n", said.String())
	assert.IsType(t, full{}, inherited(&output{to: full{}}), "a program that is started gets the terminal itself")
}
