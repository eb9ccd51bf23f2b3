package e2e_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// tracer waits for the check's interpreter and has its next system call be exit_group(0).
const tracer = `cat > trace.py <<'END'
import ctypes, os
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long] * 4
def end(pid):
    ATTACH, SYSCALL, POKEUSER, CONT, ALL = 16, 24, 6, 7, 0x40000000
    if libc.ptrace(ATTACH, pid, 0, 0): return
    os.waitpid(pid, ALL)
    libc.ptrace(SYSCALL, pid, 0, 0)
    os.waitpid(pid, ALL)
    libc.ptrace(POKEUSER, pid, 120, 231)
    libc.ptrace(POKEUSER, pid, 112, 0)
    libc.ptrace(CONT, pid, 0, 0)
open('ready', 'w')
while True:
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try: line = open('/proc/%s/cmdline' % pid, 'rb').read()
        except OSError: continue
        if line.startswith(b'python3\0') and line.endswith(b'-\0'): end(int(pid))
END
(setsid python3 trace.py >/dev/null 2>&1 &); until [ -e ready ]; do sleep 0.05; done`

// forgeries are the files and processes that agents leave in their sandboxes, by sample, and the expected score.
var forgeries = map[string]struct{ command, verdict string }{
	"honest-right":  {"echo 42 > answer; chmod 600 answer", "C"},
	"honest-wrong":  {"echo 41 > answer", "I"},
	"nothing":       {"true", "I"},
	"usercustomize": {`dir=$(python3 -m site --user-site) || true; mkdir -p $dir; echo 'import os; os._exit(0)' > $dir/usercustomize.py`, "I"},
	"module":        {"echo 'import os; os._exit(0)' > json.py", "I"},
	"daemon":        {tracer, "I"},
	"link":          {"ln -s /proc/self/cwd/want.json answer", "I"},
	"finder":        {"find / -name want.json 2>/dev/null | xargs cat /dev/null > answer", "I"},
}

// An agent cannot make a check succeed by what it leaves in its sandbox.
func TestAForgedCheckIsWrong(t *testing.T) {
	t.Parallel()
	t.Run("local", func(t *testing.T) { t.Parallel(); forge(t, "local") })
	t.Run("docker", func(t *testing.T) { t.Parallel(); forge(t, "docker", docker.env(t)...) })
}

func forge(t *testing.T, driver string, env ...string) {
	t.Helper()
	c := newHome(t, &shipped, single, env...).serve()
	samples := &agentv1.SampleList{}
	var script []any
	for _, id := range slices.Sorted(maps.Keys(forgeries)) {
		samples.Samples = append(samples.Samples, &agentv1.Sample{
			Id: id, Input: []*modelv1.ChatMessage{chat.User("Write the answer.")}, Target: &agentv1.Target{Values: []string{"42"}},
		})
		script = append(script, object{"sample": id, "outputs": []object{
			{"tool_calls": []object{{"function": "bash", "arguments": object{"command": forgeries[id].command}}}},
			{"tool_calls": []object{{"function": "submit", "arguments": object{"answer": "done"}}}},
		}})
	}
	const program = `import json, os, time
time.sleep(1)
with open(os.path.join(os.environ["EVALFLEET_WORKDIR"], "answer")) as answer:
    assert json.load(answer) == json.load(open("want.json"))
`
	eval := c.await(t, c.create(t, &agentv1.EvalSpec{
		Task: "forged", Dataset: &agentv1.Dataset{Name: "forged", Source: &agentv1.Dataset_Inline{Inline: samples}},
		Steps: react("bash"), Models: []*agentv1.ModelRef{scripted(t, script...)},
		Sandboxes:  map[string]*sandboxv1.SandboxSpec{"default": {Driver: driver}},
		Scorers:    []*agentv1.ScorerRef{{Name: "exec", ParamsJson: text(t, object{"program": program, "timeout": 30, "files": object{"want.json": "{target}"}})}},
		MaxSamples: new(int32(2)),
	}))
	require.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
	judged := c.samples(t, eval.GetName())
	require.Len(t, judged, len(forgeries))
	for _, s := range judged {
		score := s.GetScores()[0].GetScore()
		assert.Equal(t, forgeries[s.GetId()].verdict, score.GetValue().GetText(), "%s: %s", s.GetId(), score.GetExplanation())
	}
}
