package cli_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

func TestTheBeginningOfAnIDIsEnoughWhereItIsOnesAlone(t *testing.T) {
	t.Parallel()
	e := at(succeeded, 4)
	e.Name = "projects/default/evals/ulgb42"
	s := &server{eval: e, evals: []string{"ulx1", "ulgc7"}, runs: []string{"ulr9"}, samples: []*agentv1.EvalSample{
		{Id: "HumanEval/1"}, {Id: "HumanEval/10"}, {Id: "HumanEval/1", Epoch: 2}, {Id: "other", Error: &agentv1.RunError{Message: "no room"}},
	}}
	flags := serve(t, s)
	for args, want := range map[[4]string]string{
		{"eval", "show", "ulgb"}:                        "projects/default/evals/ulgb42 · sums",
		{"eval", "show", "projects/default/evals/ulgb"}: "projects/default/evals/ulgb42 · sums",
		{"run", "show", "r-ov"}:                         "projects/default/runs/r-over · succeeded",
		{"run", "delete", "ulr", "--yes"}:               "ulr9 deleted",
		{"logs", "ulgb"}:                                "HumanEval/10",
	} {
		c := begin(t, append(flags, trimmed(args)...)...)
		require.Equal(t, 0, c.end(t), "%v: %s", args, c.stderr.String())
		assert.Contains(t, c.stdout.String(), want, args)
	}
	for args, want := range map[[4]string]string{
		{"eval", "show", "ulg"}:                     `2 evaluations begin with "ulg": ulgb42, ulgc7; write more of it`,
		{"eval", "cancel", "ul"}:                    `3 evaluations begin with "ul": ulgb42, ulx1, ulgc7; write more of it`,
		{"logs", "ul"}:                              `4 evaluations and runs begin with "ul": ulgb42, ulx1, ulgc7, ulr9; write more of it`,
		{"run", "show", "r-"}:                       `2 runs begin with "r-": r-on, r-over; write more of it`,
		{"logs", "ulgb", "--sample", "HumanEval/"}:  `2 samples begin with "HumanEval/": HumanEval/1, HumanEval/10; write more of it`,
		{"logs", "ulgb", "--sample", "HumanEval/1"}: "sample HumanEval/1 has not begun",
		{"logs", "ulgb", "--sample", "oth"}:         "sample other could not begin: no room",
		{"logs", "ulgb", "--sample", "nope"}:        "ulgb42 has no sample nope; there are HumanEval/1, HumanEval/10, other",
		{"eval", "show", "x"}:                       "no projects/default/evals/x",
	} {
		c := begin(t, append(flags, trimmed(args)...)...)
		assert.NotEqual(t, 0, c.end(t), args)
		assert.Contains(t, c.stderr.String(), want, args)
	}
}

// trimmed is a command line without the words that are not there.
func trimmed(args [4]string) []string {
	var words []string
	for _, arg := range args {
		if arg != "" {
			words = append(words, arg)
		}
	}
	return words
}
