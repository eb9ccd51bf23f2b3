package peers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
)

// An evaluation shows an unreachable service while calls of its runs need it: each run once, since the later of call
// and outage.
func TestAnOutageShowsWhereItIsFelt(t *testing.T) {
	t.Parallel()
	var o Outages
	start := time.Unix(1_700_000_000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	o.Begin(Call{Run: "a", Eval: "e", Services: []string{Toolexec, Sandboxd}, Since: at(0)})
	end := o.Begin(Call{Run: "b", Eval: "e", Services: []string{Sandboxd}, Since: at(1)})
	o.Begin(Call{Run: "b", Eval: "e", Services: []string{Sandboxd}, Since: at(2)})
	o.Begin(Call{Run: "c", Eval: "other", Services: []string{Sandboxd}, Since: at(0)})
	assert.Empty(t, o.Waits("e"))
	away := map[string]bool{Sandboxd: true, Modelgw: true}
	o.Probe(func(service string) bool { return away[service] }, at(5))
	all := o.Waits("e")
	require.Len(t, all, 1, "no call needs modelgw")
	assert.Equal(t, waits.Service, all[0].GetReason())
	assert.Equal(t, "sandboxd does not answer", all[0].GetMessage())
	assert.Equal(t, int32(2), all[0].GetSamples())
	assert.Equal(t, at(5), all[0].GetSince().AsTime().Local())
	end()
	assert.Equal(t, int32(2), o.Waits("e")[0].GetSamples(), "the run has another call open")
	away = nil
	o.Probe(func(string) bool { return false }, at(6))
	assert.Empty(t, o.Waits("e"))
}
