package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// The commands that are suggested next keep the options that define the task, can be run unchanged, and are useful next
// steps.
func TestTheNextCommandIsTheNextUsefulThing(t *testing.T) {
	t.Parallel()
	file := task(t, 1)
	options := []string{"--set", "limits={turns: 5}", "--set", "metadata.who=it's me", "--driver", "local", "--tag", "t", "--no-log"}
	const kept = ` --driver local --no-log --set 'limits={turns: 5}' --set 'metadata.who=it'\''s me' --tag t`
	for name, tt := range map[string]struct {
		model  string
		keyed  []string
		args   []string
		change func(e *agentv1.Eval)
		want   string
	}{
		"a scripted model, no key":       {"mockllm/he", nil, []string{"-m", "mockllm/he", "-M", "script=" + file}, nil, "next      evalfleet eval run FILE" + kept + " -m openai/gpt-4o --limit 5 FLAGS\n          once the server was started where OPENAI_API_KEY is set\n"},
		"a scripted model, a key":        {"mockllm/he", []string{"anthropic"}, nil, nil, "next      evalfleet eval run FILE" + kept + " -m anthropic/claude-sonnet-4-5 --limit 5 FLAGS\n"},
		"a real model, few samples":      {"openai/gpt-4o", nil, []string{"-m", "openai/gpt-4o", "-M", "n=1", "--limit", "5"}, nil, "next      evalfleet eval run FILE" + kept + " -m openai/gpt-4o -M n=1 FLAGS\n"},
		"a scripted model, some samples": {"mockllm/he", []string{"openai"}, []string{"--sample-id", "a*", "--sample-id", "b"}, nil, "next      evalfleet eval run FILE" + kept + " -m openai/gpt-4o --sample-id 'a*' --sample-id b FLAGS\n"},
		"a real model, some samples":     {"openai/gpt-4o", nil, []string{"-m", "openai/gpt-4o", "--sample-id", "b"}, nil, "next      evalfleet eval run FILE" + kept + " -m openai/gpt-4o FLAGS\n"},
		"a flag that is switched off":    {"openai/gpt-4o", nil, []string{"-m", "openai/gpt-4o", "--limit", "5", "--allow-unisolated=false"}, nil, "next      evalfleet eval run FILE --allow-unisolated=false" + kept + " -m openai/gpt-4o FLAGS\n"},
		"a text with a line break":       {"openai/gpt-4o", nil, []string{"-m", "openai/gpt-4o", "-M", "x=é\ny", "--limit", "5"}, nil, "next      evalfleet eval run FILE" + kept + ` -m openai/gpt-4o -M $'x=\303\251\012y' FLAGS` + "\n"},
		"a key of another account":       {"mockllm/he", []string{"openai/team"}, nil, nil, "next      evalfleet eval run FILE" + kept + " -m openai/gpt-4o --limit 5 FLAGS\n          once the server was started where OPENAI_API_KEY is set\n"},
		"a real model":                   {"openai/gpt-4o", nil, []string{"-m", "openai/gpt-4o"}, nil, ""},
		"half of it wrong": {"openai/gpt-4o", nil, []string{"--limit", "5"}, func(e *agentv1.Eval) {
			*e.Results.Scores[0].Metrics[0].Value = 0.5
		}, "next      evalfleet logs e1 --failed FLAGS\n"},
		"limits were met": {"mockllm/he", []string{"openai"}, nil, func(e *agentv1.Eval) { e.Progress.Limited = 2 }, "next      evalfleet logs e1 --failed FLAGS\n" +
			"          evalfleet eval run FILE" + kept + " -m openai/gpt-4o --limit 5 FLAGS\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{eval: at(running, 0), keyed: tt.keyed}
			s.watch = func(_ int, _ *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
				end := at(succeeded, 4)
				end.Spec.Models[0].Model = tt.model
				if tt.change != nil {
					tt.change(end)
				}
				return stream.Send(&agentv1.WatchEvalResponse{Update: &agentv1.WatchEvalResponse_Progress{Progress: s.become(end)}})
			}
			flags := serve(t, s)
			c := begin(t, append(append(append(flags, "eval", "run", file), options...), tt.args...)...)
			require.Equal(t, 0, c.end(t), c.stderr.String())
			_, after, _ := strings.Cut(c.stdout.String(), "log       ")
			_, next, _ := strings.Cut(after, "\n")
			assert.Equal(t, tt.want, strings.NewReplacer(strings.Join(flags, " "), "FLAGS", file, "FILE").Replace(next))
		})
	}
}
