package turns_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/bench/internal/turns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, script string) (*turns.Program, error) {
	t.Helper()
	return turns.Start(exec.CommandContext(t.Context(), "sh", "-c", script))
}

func TestAProgramMeasuresItself(t *testing.T) {
	t.Parallel()
	p, err := start(t, `echo ready; while read -r seconds; do echo "{\"calls\": 10, \"seconds\": $seconds, \"cpu\": 0.001}"; done`)
	require.NoError(t, err)
	rate, err := p.Rate()(t.Context(), 500*time.Millisecond)
	require.NoError(t, err)
	assert.InDelta(t, 20, rate, 1e-9)
	cpu, err := p.CPU()(t.Context(), time.Second)
	require.NoError(t, err)
	assert.InDelta(t, 100, cpu, 1e-9)
	require.NoError(t, p.Stop())
}

func TestAProgramThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := start(t, `echo no server >&2; exit 3`)
	require.ErrorContains(t, err, "no server")
	p, err := start(t, `echo ready; read -r _; echo broken >&2; exit 3`)
	require.NoError(t, err)
	_, err = p.Rate()(t.Context(), time.Second)
	require.Error(t, err)
	require.ErrorContains(t, p.Stop(), "broken")
}
