package score_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

func TestFloat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"C": 1, "P": 0.5, "I": 0, "N": 0, "Yes": 1, "FALSE": 0, " 0.25 ": 0.25} {
		got, ok := score.Text(text).Float()
		assert.True(t, ok, text)
		assert.InDelta(t, want, got, 0, text)
	}
	for _, v := range []score.Value{{}, score.Text("c"), score.Text("inf"), score.Text("x"), score.List(score.Number(1)), score.Map()} {
		got, ok := v.Float()
		assert.False(t, ok)
		assert.Zero(t, got)
	}
	unscored, ok := score.Unscored().Float()
	assert.True(t, ok)
	assert.True(t, math.IsNaN(unscored))
}

func TestEqual(t *testing.T) {
	t.Parallel()
	one := score.Number(1)
	entry := func(key string, v score.Value) score.Entry { return score.Entry{Key: key, Value: v} }
	assert.True(t, one.Equal(score.Bool(true)), "as in Python")
	assert.False(t, one.Equal(score.Text("1")))
	assert.False(t, score.Unscored().Equal(score.Unscored()))
	assert.True(t, score.List(one, score.Text("a")).Equal(score.List(one, score.Text("a"))))
	assert.False(t, score.List(one).Equal(score.List()))
	assert.True(t, score.Map(entry("a", one), entry("b", one)).Equal(score.Map(entry("b", one), entry("a", one))))
	assert.False(t, score.Map(entry("a", one)).Equal(score.Map(entry("b", one))))
	assert.True(t, score.Value{}.Equal(score.Value{}))
	scalars := []score.Value{one, score.Integer(1), score.Bool(true), score.Bool(false), score.Number(0), score.Text("1"), score.Text(""), score.Text("a"), {}, score.Unscored()}
	for _, a := range scalars {
		for _, b := range scalars {
			assert.Equal(t, a.Equal(b), a.Scalar() == b.Scalar(), "%s and %s", a.Text(), b.Text())
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		`"red"`: "red", `true`: "True", `1`: "1", `1.50`: "1.5", `[1,"a"]`: `[1,"a"]`, `{"b":0.5,"a":null}`: `{"b":0.5,"a":null}`,
	} {
		assert.Equal(t, want, parse(t, document).Text())
	}
}

func parse(t *testing.T, document string) score.Value {
	t.Helper()
	var v score.Value
	require.NoError(t, json.Unmarshal([]byte(document), &v))
	return v
}

func TestJSONRoundTrip(t *testing.T) {
	t.Parallel()
	for _, document := range []string{
		`"C"`, `1`, `1.0`, `12345678901234567890123`, `-0.5e-3`, `true`, `[]`, `["a",1,null,false]`, `{}`, `{"z":1,"a":"<b>"}`, `null`,
		`{"a":{"$number":"NaN"},"b":{"$number":"-Infinity"}}`, `[{"$number":"Infinity"}]`, `{"$number":"Infinity"}`,
	} {
		raw, err := json.Marshal(parse(t, document))
		require.NoError(t, err)
		var want, got any
		require.NoError(t, json.Unmarshal([]byte(document), &want))
		require.NoError(t, json.Unmarshal(raw, &got))
		assert.Equal(t, want, got)
	}
	assert.True(t, parse(t, "null").IsUnscored())
	raw, err := json.Marshal(parse(t, `12345678901234567890123`))
	require.NoError(t, err)
	assert.Equal(t, "12345678901234567890123", string(raw), "numbers keep their digits")
}

func TestJSONRefusesOtherShapes(t *testing.T) {
	t.Parallel()
	for _, document := range []string{`[[1]]`, `{"a":[1]}`, `{"a":{"b":1}}`, `[{"$number":"1"}]`, `{"a":1,"a":2}`, `{"a":{"$number":"NaN","b":1}}`} {
		assert.Error(t, json.Unmarshal([]byte(document), new(score.Value)), document)
	}
}

func TestLogFormHasBareConstants(t *testing.T) {
	t.Parallel()
	v := score.Map(score.Entry{Key: "a", Value: score.Unscored()}, score.Entry{Key: "b", Value: score.Number(math.Inf(-1))}, score.Entry{Key: "c"})
	assert.Equal(t, `{"a":NaN,"b":-Infinity,"c":null}`, string(v.AppendLog(nil)))
	assert.Equal(t, "NaN", string(score.Unscored().AppendLog(nil)))
}

func TestScoreJSON(t *testing.T) {
	t.Parallel()
	s := score.Score{Value: score.Unscored(), Answer: new(""), Reason: score.ReasonGraderFailed, Metadata: map[string]json.RawMessage{"k": json.RawMessage(`1.0`)}}
	raw, err := json.Marshal(s)
	require.NoError(t, err)
	assert.Equal(t, `{"value":null,"answer":"","reason":"grader_failed","metadata":{"k":1.0}}`, string(raw))
	var back score.Score
	require.NoError(t, json.Unmarshal(raw, &back))
	assert.True(t, back.Value.IsUnscored())
	assert.Equal(t, s.Answer, back.Answer)
}

func FuzzValueJSON(f *testing.F) {
	f.Add([]byte(`{"a":{"$number":"NaN"},"b":[1]}`))
	f.Add([]byte(`[1.0,"x",null,true]`))
	f.Fuzz(func(t *testing.T, document []byte) {
		var v score.Value
		if json.Unmarshal(document, &v) != nil {
			return
		}
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		var back score.Value
		require.NoError(t, json.Unmarshal(raw, &back))
		again, err := json.Marshal(back)
		require.NoError(t, err)
		require.Equal(t, string(raw), string(again))
	})
}

func TestAValueMayHaveManyKeys(t *testing.T) {
	t.Parallel()
	var document strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&document, `"k%d":1,`, i)
	}
	begun := time.Now()
	var v score.Value
	require.NoError(t, json.Unmarshal([]byte("{"+document.String()+`"k":1}`), &v))
	assert.Len(t, v.Entries(), 200_001)
	assert.True(t, v.Equal(v))
	last, ok := v.Lookup("k199999")
	assert.True(t, ok)
	assert.True(t, last.Equal(score.Integer(1)))
	require.ErrorContains(t, json.Unmarshal([]byte("{"+document.String()+`"k7":1}`), &v), `"k7" is given twice`)
	assert.Less(t, time.Since(begun), waittest.Bound)
}
