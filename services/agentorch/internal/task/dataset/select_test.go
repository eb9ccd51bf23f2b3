package dataset_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

func withIDs(ids ...dataset.ID) *whole {
	d := &whole{Name: "d"}
	for _, id := range ids {
		d.Samples = append(d.Samples, dataset.Sample{ID: id})
	}
	return d
}

func TestIDJSONKeepsTheType(t *testing.T) {
	t.Parallel()
	var all []dataset.ID
	document := `[7,"7",null,"",-12345678901234567890123,"é"]`
	require.NoError(t, json.Unmarshal([]byte(document), &all))
	raw, err := json.Marshal(all)
	require.NoError(t, err)
	assert.Equal(t, document, string(raw))
	assert.NotEqual(t, all[0], all[1])
	assert.Equal(t, dataset.IntegerID(7), all[0])
	assert.False(t, all[2].IsSet())
	assert.True(t, all[3].IsSet())
	for _, other := range []string{`1.5`, `true`, `[]`} {
		assert.Error(t, json.Unmarshal([]byte(other), new(dataset.ID)), other)
	}
	_, err = dataset.ParseID("7x", true)
	require.Error(t, err)
	same, err := dataset.ParseID("007", true)
	require.NoError(t, err)
	assert.Equal(t, dataset.IntegerID(7), same)
}

func TestAssignIDs(t *testing.T) {
	t.Parallel()
	d := withIDs(dataset.ID{}, dataset.TextID("x"), dataset.ID{})
	require.NoError(t, d.assignIDs())
	assert.Equal(t, []any{dataset.IntegerID(1), dataset.TextID("x"), dataset.IntegerID(3)}, ids(d.Samples))
	for _, twice := range []*whole{withIDs(dataset.TextID("a"), dataset.TextID("a")), withIDs(dataset.IntegerID(1), dataset.TextID("1")), withIDs(dataset.IntegerID(2), dataset.ID{})} {
		require.ErrorContains(t, twice.assignIDs(), `field id: samples 1 and 2 both have the id`)
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	d := withIDs(dataset.TextID("a1"), dataset.IntegerID(7), dataset.TextID("010"), dataset.TextID("b"))
	selected, unmatched, err := d.pick(nil, dataset.Selection{IDs: []dataset.ID{dataset.TextID("007"), dataset.TextID("a*"), dataset.TextID("z"), dataset.IntegerID(10)}})
	require.NoError(t, err)
	assert.Equal(t, []any{dataset.TextID("a1"), dataset.IntegerID(7), dataset.TextID("010")}, ids(selected.Samples), "in the dataset's order")
	assert.Equal(t, []dataset.ID{dataset.TextID("z")}, unmatched)
	assert.Len(t, d.Samples, 4, "the dataset itself stays whole")

	_, _, err = d.pick(nil, dataset.Selection{IDs: []dataset.ID{dataset.TextID("z")}})
	require.ErrorContains(t, err, "no sample has the id z; there are a1, 7, 010, b")
	_, _, err = d.pick(nil, dataset.Selection{IDs: []dataset.ID{dataset.TextID("b")}, Range: &dataset.Range{}})
	require.ErrorContains(t, err, "use one of the two")
	_, _, err = d.pick(nil, dataset.Selection{Range: &dataset.Range{Start: -1, End: 2}})
	require.ErrorContains(t, err, "positions begin at 0")
	for span, want := range map[dataset.Range]int{{Start: 1, End: 3}: 2, {Start: 3, End: 1}: 0, {Start: 9, End: 99}: 0, {}: 0} {
		selected, _, err = d.pick(nil, dataset.Selection{Range: &span})
		require.NoError(t, err)
		assert.Len(t, selected.Samples, want, "%v", span)
	}
	selected, _, err = d.pick(nil, dataset.Selection{})
	require.NoError(t, err)
	assert.Len(t, selected.Samples, 4)

	many := &whole{}
	for i := range 100 {
		many.Samples = append(many.Samples, dataset.Sample{ID: dataset.IntegerID(i)})
	}
	_, _, err = many.pick(nil, dataset.Selection{IDs: []dataset.ID{dataset.TextID("x")}})
	require.ErrorContains(t, err, "0, 1, 2, 3, 4, 5, 6, 7 and 92 more")
}

// Samples and the ids to select may both be many, so plain ids are looked up, and patterns are few and short.
func TestManySelectedIDsTakeLittleTime(t *testing.T) {
	t.Parallel()
	const n = 100_000
	many, sel := &whole{}, dataset.Selection{IDs: []dataset.ID{dataset.TextID("a*")}}
	for i := range n {
		many.Samples = append(many.Samples, dataset.Sample{ID: dataset.TextID("a" + strconv.Itoa(i))})
		sel.IDs = append(sel.IDs, dataset.TextID("b"+strconv.Itoa(i)))
	}
	picked := make(chan int, 1)
	go func() {
		selected, unmatched, err := many.pick(nil, sel)
		assert.NoError(t, err)
		assert.Len(t, unmatched, n)
		picked <- len(selected.Samples)
	}()
	assert.Equal(t, n, waittest.For(t, picked, "the selection"))

	var patterns []dataset.ID
	for i := range bound.SamplePatterns + 1 {
		patterns = append(patterns, dataset.TextID("a"+strconv.Itoa(i)+"*"))
	}
	_, _, err := many.pick(nil, dataset.Selection{IDs: patterns[1:]})
	require.NoError(t, err)
	_, _, err = many.pick(nil, dataset.Selection{IDs: patterns})
	require.ErrorContains(t, err, "more than 100 patterns")
	_, _, err = many.pick(nil, dataset.Selection{IDs: []dataset.ID{dataset.TextID("*" + strings.Repeat("a", bound.SamplePatternBytes))}})
	require.ErrorContains(t, err, "has 1025 bytes; at most 1024")
}

func TestSortKeysAreInTheOrderOfLogs(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, id := range []dataset.ID{dataset.IntegerID(-1), dataset.IntegerID(9), dataset.IntegerID(10), dataset.TextID("a"), dataset.TextID("b")} {
		keys = append(keys, id.SortKey())
	}
	assert.IsIncreasing(t, keys)
	assert.Equal(t, "00000000000000000007", dataset.IntegerID(7).SortKey())
}

func TestAnOrderDependsOnTheSeedAlone(t *testing.T) {
	t.Parallel()
	order := func(seed int64) string { return fmt.Sprint(dataset.Order(seed, 6)) }
	assert.Equal(t, "[2 4 3 1 0 5]", order(1), "an order once given is kept by every version: evaluations are resumed by it")
	assert.NotEqual(t, order(1), order(2))
}

// reordered reads rows with their choices in an order by chance.
func reordered(t *testing.T, seed int64, rows string) (*whole, error) {
	t.Helper()
	return read(t.Context(), strings.NewReader(rows), dataset.Options{Name: "d", Format: dataset.JSONLines, ShuffleChoices: &seed})
}

func TestTargetsFollowTheirChoices(t *testing.T) {
	t.Parallel()
	values := []string{"zero", "one", "two", "three", "four"}
	d, err := reordered(t, 3, `{"input":"q","choices":["zero","one","two","three","four"],"target":["B","e"]}
{"input":"without choices"}`)
	require.NoError(t, err)
	s := d.Samples[0]
	assert.NotEqual(t, values, s.Choices)
	for position, original := range s.ChoiceOrder {
		assert.Equal(t, values[original], s.Choices[position])
	}
	assert.Equal(t, "one", s.Choices[s.Targets[0][0]-'A'])
	assert.Equal(t, "four", s.Choices[s.Targets[1][0]-'A'])
	assert.Nil(t, d.Samples[1].ChoiceOrder)
}

func TestATargetThatIsNoLetterIsNamed(t *testing.T) {
	t.Parallel()
	_, err := reordered(t, 1, `{"input":"q","choices":["x","y"],"target":"A"}
{"input":"q","id":"s2","choices":["x","y"],"target":"free text"}`)
	require.ErrorContains(t, err, `dataset d, field target: sample s2 (number 2): choices cannot be shuffled, since the target "free text"`)
}

func TestIntegersAsIDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"7": "7", "+7": "7", "-7": "-7", "007": "7", "-0": "0", "000": "0", "-00123456789012345678901234567890": "-123456789012345678901234567890"} {
		id, err := dataset.ParseID(text, true)
		require.NoError(t, err)
		assert.Equal(t, want, id.String())
	}
	for _, text := range []string{"", "-", "+", "+-7", "--7", "1_0", " 7", "7 ", "7.0", "0x7", "٧"} {
		_, err := dataset.ParseID(text, true)
		assert.Error(t, err, text)
	}
	begun := time.Now()
	long := strings.Repeat("9", 8<<20)
	id, err := dataset.ParseID("0"+long, true)
	require.NoError(t, err)
	assert.Len(t, id.String(), len(long))
	assert.Less(t, time.Since(begun), waittest.Bound)
}
