package engine_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// The server's log has the begin and the end of a run of its own, and why it failed. It has nothing of a run of an
// evaluation.
func TestTheLogHasTheBeginAndEndOfARunOfItsOwn(t *testing.T) {
	t.Parallel()
	const refusal = "the prompt is about secrets"
	for name, test := range map[string]struct {
		eval  string
		fails bool
		want  []string
	}{
		"one that succeeds":    {"", false, []string{`level=INFO msg="a run begins" run=projects/p/runs/`, `level=INFO msg="a run has ended" run=projects/p/runs/`}},
		"one that fails":       {"", true, []string{`level=INFO msg="a run begins" run=projects/p/runs/`, `level=WARN msg="a run has ended" run=projects/p/runs/`}},
		"one of an evaluation": {"projects/p/evals/e", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			f := newFleet(t)
			f.Logger = slog.New(slog.NewTextHandler(&b, nil))
			f.start()
			f.Models.Answer = servicetest.ByTurn(servicetest.Says("done"))
			if test.fails {
				f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
					return nil, rpcerr.ProviderRejected("mockllm", 400, refusal)
				}
			}
			s := spec(step("generate", ""))
			s.Attribution = &effectv1.Attribution{Eval: test.eval}
			f.Finish(f.Create(s).Name)
			f.End() // The last line follows the last event.
			lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
			if test.want == nil {
				assert.Empty(t, b.String())
				return
			}
			require.Len(t, lines, len(test.want), b.String())
			for i, want := range test.want {
				assert.Contains(t, lines[i], want)
			}
			if test.fails {
				assert.Contains(t, lines[1], "state=failed ")
				assert.Contains(t, lines[1], "reason=PROVIDER_REJECTED")
			}
			assert.NotContains(t, b.String(), refusal)
		})
	}
}
