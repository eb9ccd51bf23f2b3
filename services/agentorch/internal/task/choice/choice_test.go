package choice_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/choice"
)

func TestLetters(t *testing.T) {
	t.Parallel()
	for i, want := range map[int]string{0: "A", 25: "Z", 26: "1", 35: "10"} {
		assert.Equal(t, want, choice.Letter(i))
		back, err := choice.Index(want)
		require.NoError(t, err)
		assert.Equal(t, i, back)
	}
	lower, err := choice.Index("c")
	require.NoError(t, err)
	assert.Equal(t, 2, lower)
	for _, letter := range []string{"", "AB", "0", "-1", "!", "A "} {
		_, err := choice.Index(letter)
		assert.Error(t, err, letter)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		completion string
		n          int
		multiple   bool
		want       []int
	}{
		{"ANSWER: B", 4, false, []int{1}},
		{"thinking\nanswer : b.", 4, false, []int{1}},
		{"ANSWER: A\nANSWER: B", 4, false, []int{1}},
		{"ANSWER: A\nso ANSWER: B!", 4, false, []int{0}},
		{"I say ANSWER: B) Paris", 4, false, []int{1}},
		{"**ANSWER: $C$**", 4, false, []int{2}},
		{"ANSWER: **B**", 4, false, []int{1}},
		{"ANSWER: (B)", 4, false, []int{1}},
		{"ANSWER: B,", 4, false, []int{1}},
		{"ANSWER: AB", 4, false, nil},
		{"ANSWER: E", 4, false, nil},
		{"ANSWER: Paris", 4, false, nil},
		{"ANSWER: B\u0130", 4, false, nil},
		{"B", 4, false, nil},
		{"", 4, false, nil},
		{"ANSWER: 1", 30, false, []int{26}},
		{"ANSWER: C and A", 4, true, []int{0, 2}},
		{"ANSWER: A, B, and D.", 4, true, []int{0, 1, 3}},
		{"ANSWER: CA", 4, true, []int{0, 2}},
		{"ANSWER: A C", 4, true, []int{0, 2}},
		{"ANSWER: (A), (C)", 4, true, []int{0, 2}},
		{"ANSWER: A, A", 4, true, []int{0}},
		{"ANSWER: A, E", 4, true, nil},
	} {
		assert.Equal(t, c.want, choice.Parse(c.completion, c.n, c.multiple), "%q", c.completion)
	}
}

func TestPromptIsFilledOnce(t *testing.T) {
	t.Parallel()
	c := choice.New([]string{"{question}", "x}}"})
	prompt, err := c.Prompt("{{{letters}}} {question} {choices}", "What is {choices}?")
	require.NoError(t, err)
	assert.Equal(t, "{A,B} What is {choices}? A) {question}\nB) x}}", prompt)
	_, err = c.Prompt(strings.Repeat("{question}", 2000), strings.Repeat("q", 10<<10))
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
	for _, reasoning := range []bool{true, false} {
		for _, multiple := range []bool{true, false} {
			template := choice.DefaultTemplate(reasoning, multiple)
			require.NoError(t, choice.CheckTemplate(template))
			prompt, err := c.Prompt(template, "Why?")
			require.NoError(t, err)
			assert.Contains(t, prompt, "ANSWER: $LETTER")
			assert.Contains(t, prompt, "A,B")
			assert.NotContains(t, prompt, "%!")
		}
	}
	require.ErrorContains(t, choice.CheckTemplate("{question}"), "{choices}")
}

func TestUnshuffledLettersAreTheSamples(t *testing.T) {
	t.Parallel()
	c := choice.Choices{{Value: "c", Original: 2}, {Value: "a", Original: 0}, {Value: "b", Original: 1}}
	assert.True(t, c.Shuffled())
	c.Select([]int{0})
	back := c.Unshuffled()
	assert.False(t, back.Shuffled())
	assert.Equal(t, "A) a\nB) b\nC) c", back.List())
	assert.Equal(t, []int{2}, back.Selected())
	assert.Equal(t, "A) c\nB) a\nC) b", c.List(), "the shuffled ones stay as they are")
}

func TestTargetPositions(t *testing.T) {
	t.Parallel()
	c := choice.New(slices.Repeat([]string{"x"}, 30))
	for _, targets := range [][]string{{"A,C"}, {"A C"}, {"ac"}, {"A", "C"}} {
		got, err := c.TargetPositions(targets)
		require.NoError(t, err)
		assert.Equal(t, []int{0, 2}, got)
	}
	got, err := c.TargetPositions([]string{"4"})
	require.NoError(t, err)
	assert.Equal(t, []int{29}, got)
	_, err = c.TargetPositions([]string{"10"})
	require.ErrorContains(t, err, "target names 10, but the sample has 30 choices")
	_, err = c.TargetPositions([]string{"A-B"})
	require.ErrorContains(t, err, `"-" names no option`)
	got, err = c.TargetPositions([]string{""})
	require.NoError(t, err)
	assert.Empty(t, got)
}

func FuzzParse(f *testing.F) {
	f.Add("ANSWER: (A), $B$ and **C**.", 4, true)
	f.Add("answer:\n\n", 2, false)
	f.Fuzz(func(t *testing.T, completion string, n int, multiple bool) {
		positions := choice.Parse(completion, n, multiple)
		require.True(t, slices.IsSorted(positions))
		for _, p := range positions {
			require.True(t, 0 <= p && p < n)
		}
		require.True(t, multiple || len(positions) <= 1)
	})
}

func TestManyChoicesAreSelected(t *testing.T) {
	t.Parallel()
	choices := make(choice.Choices, 500_000)
	positions := make([]int, len(choices))
	for i := range positions {
		positions[i] = len(positions) - 1 - i
	}
	begun := time.Now()
	choices.Select(positions)
	assert.Len(t, choices.Selected(), len(choices))
	choices.Select([]int{3, 1, 3, -1, len(choices)})
	assert.Equal(t, []int{1, 3}, choices.Selected())
	assert.Less(t, time.Since(begun), waittest.Bound)
}
