package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// delayed is a task whose second sample takes that many seconds.
func (h *home) delayed(name, seconds string) string {
	return h.write(name+".yaml", strings.NewReplacer("task: slow", "task: "+name, "delay_s: 3", "delay_s: "+seconds).Replace(slowTask))
}

// two starts a command with a server, and another that is its client, and waits until the evaluations of both exist.
func (h *home) two(first, second string) (server, guest *running, c *client) {
	h.t.Helper()
	server = h.begin("eval", "run", first)
	c = h.attach(server)
	made := func(n int) func() bool {
		return func() bool {
			list, err := c.evals.ListEvals(within(h.t), &agentv1.ListEvalsRequest{Parent: project})
			require.NoError(h.t, err)
			return len(list.GetEvals()) == n
		}
	}
	eventually(h.t, made(1), "the first evaluation is made")
	guest = h.begin("eval", "run", second)
	eventually(h.t, made(2), "the second evaluation is made")
	return server, guest, c
}

const heldTask = `
task: held
dataset:
  - {id: quick, input: quick, target: hello there}
  - {id: slow, input: slow, target: hello there}
solver: generate
scorer: match
max_samples: 1
model: openai/gpt-4o
`

// holding is a home whose model answers requests that name one of these only after the function of that name was
// called.
func holding(t *testing.T, names ...string) (h *home, release map[string]func()) {
	t.Helper()
	held := map[string]chan struct{}{}
	release = map[string]func(){}
	for _, name := range names {
		held[name] = make(chan struct{})
		release[name] = sync.OnceFunc(func() { close(held[name]) })
	}
	v := &vendors{t: t}
	api := httptest.NewServer(v.serving("Authorization", "Bearer vendor-key", func(w http.ResponseWriter, r *vendorRequest, refuse func(int, string)) {
		for name, free := range held {
			if strings.Contains(fmt.Sprint(r.Messages), name) {
				waittest.Hold(t, free)
			}
		}
		v.chatCompletion(w, r, refuse)
	}))
	t.Cleanup(api.Close)
	return newHome(t, &shipped, single, "OPENAI_API_KEY=vendor-key", "OPENAI_BASE_URL="+api.URL+"/v1"), release
}

// A command with a server continues until the work of other commands is done, and reports that.
func TestServesOnForOthers(t *testing.T) {
	t.Parallel()
	h, release := holding(t, "first", "second")
	task := func(name string) string { return h.write(name+".yaml", strings.ReplaceAll(heldTask, "slow", name)) }
	first, second, c := h.two(task("first"), task("second"))
	c.leave()
	release["first"]()
	eventually(t, func() bool {
		return first.over() || strings.Contains(first.err.String(), "serving on")
	}, "the command serves on when its own evaluation has ended")
	require.False(t, first.over(), "the command ended: %v", &first.err)
	release["second"]()
	for _, r := range []*running{second, first} {
		end := r.end()
		assert.Zero(t, end.code, end.err)
	}
}

// One that is interrupted cancels its own evaluation alone.
func TestAnInterruptLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single)
	first, second, c := h.two(h.delayed("first", "600"), h.delayed("second", "3"))
	c.leave()
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGINT))
	theirs := second.end()
	assert.Zero(t, theirs.code, theirs.err)
	own := first.end()
	assert.Equal(t, 130, own.code, own.err)
	assert.Contains(t, own.out, "evalfleet eval resume ")
}

// The first interrupt of a command with a server ends only its own evaluation, and prints how to resume it and that the
// server continues. The second one ends the server; the next server continues the work of others.
func TestTheSecondInterruptEndsTheServer(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single)
	first, second, c := h.two(h.delayed("first", "600"), h.delayed("second", "600"))
	held, ok := holderOf(h.dir)
	require.True(t, ok)

	require.NoError(t, first.cmd.Process.Signal(syscall.SIGINT))
	eventually(t, func() bool {
		return first.over() || strings.Contains(first.err.String(), "serving on at "+held.Address+": 1 of others at work")
	}, "the server serves on")
	require.False(t, first.over(), "the command ended: %v", &first.err)
	// Its standard output is another pipe, which may be read later.
	eventually(t, func() bool { return strings.Contains(first.out.String(), "evalfleet eval resume ") }, "its own evaluation has ended, and how to go on with it is told")
	running, err := c.evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project, States: []agentv1.EvalState{agentv1.EvalState_EVAL_STATE_RUNNING}})
	require.NoError(t, err)
	require.Len(t, running.GetEvals(), 1, "that of the other goes on")
	theirs := running.GetEvals()[0]
	assert.Equal(t, "second", theirs.GetSpec().GetTask())
	assert.False(t, second.over(), "and so does the command that follows it")

	require.NoError(t, first.cmd.Process.Signal(syscall.SIGINT))
	assert.Equal(t, 130, first.end().code, first.err.String())
	_, err = c.evals.GetEval(within(t), &agentv1.GetEvalRequest{Name: theirs.GetName()})
	assert.Equal(t, codes.Unavailable, rpcerr.Code(err), "the server is gone: %v", err)

	h.addresses[h.form.front()] = held.Address
	c = h.serve()
	_, err = c.evals.CancelEval(within(t), &agentv1.CancelEvalRequest{Name: theirs.GetName()})
	require.NoError(t, err, "the next server has it")
	assert.Equal(t, 1, second.end().code, second.err.String())
	assert.Contains(t, second.out.String(), "cancelled", "the command has followed it to its end")
}
