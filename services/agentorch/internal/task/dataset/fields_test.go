package dataset_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

// readOne reads one row with a mapping.
func readOne(t *testing.T, fields, row string) dataset.Sample {
	t.Helper()
	f, err := dataset.ParseFields([]byte(fields))
	require.NoError(t, err)
	d, err := read(t.Context(), strings.NewReader(row), dataset.Options{Format: dataset.JSONLines, Fields: f})
	require.NoError(t, err)
	require.Len(t, d.Samples, 1)
	return d.Samples[0]
}

func TestSources(t *testing.T) {
	t.Parallel()
	row := `{"question":"Why?","hint":"{x}","n":4.50,"ok":true,"list":["b",{"a":1.0}],"answer":"so #### 1,234 #### 5","none":null}`
	for source, want := range map[string]string{
		`"question"`: "Why?",
		`{"template":"{question}\n{{hint}}: {hint} {n} {ok}"}`:                "Why?\n{hint}: {x} 4.5 True",
		`{"template":"{list}"}`:                                               `["b",{"a":1.0}]`,
		`{"template":"plain"}`:                                                "plain",
		`{"column":"answer","pattern":"#### (\\S+)"}`:                         "1,234",
		`{"column":"answer","pattern":"####"}`:                                "####",
		`{"column":"answer","pattern":"#### (\\S+) #### (\\d)","group":2}`:    "5",
		`{"column":"answer","pattern":"#### (\\S+)","group":0}`:               "#### 1,234",
		`{"column":"answer","pattern":"(?P<a>s)(?P<rest>.) ","group":"rest"}`: "o",
		`{"column":"n","pattern":"\\d"}`:                                      "4",
		`{"column":"nosuch","optional":true}`:                                 "",
		`{"template":"{nosuch}","optional":true}`:                             "",
		`{"template":"{none}","optional":true}`:                               "",
		`{"column":"answer","pattern":"z","optional":true}`:                   "",
		`{"column":"answer","pattern":"(z)?#","optional":true}`:               "",
		`{"column":"nosuch","pattern":"z","optional":true}`:                   "",
	} {
		s := readOne(t, `{"input":"question","target":`+source+`}`, row)
		assert.Equal(t, []string{want}, s.Targets, source)
	}
}

func TestMetadataMappings(t *testing.T) {
	t.Parallel()
	row := `{"input":"q","z":1.0,"a":null,"meta":"{\"k\":[1]}","metadata":{"own":1}}`
	for mapping, want := range map[string]string{
		`null`:      `{"own":1}`,
		`["z","a"]`: `{"z":1.0,"a":null}`,
		`"*"`:       `{"input":"q","z":1.0,"a":null,"meta":"{\"k\":[1]}","metadata":{"own":1}}`,
		`"meta"`:    `{"k":[1]}`,
		`{"first":"z","second":{"template":"<{z}>"},"third":{"column":"none","optional":true}}`: `{"first":1.0,"second":"<1.0>"}`,
		`{}`: `{}`,
	} {
		s := readOne(t, `{"metadata":`+mapping+`}`, row)
		raw, err := s.Metadata.MarshalJSON()
		require.NoError(t, err)
		assert.Equal(t, want, string(raw), mapping)
	}
	assert.Nil(t, readOne(t, ``, `{"input":"q"}`).Metadata)
}

func TestParseFieldsNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`[]`:                      "fields_json: want an object",
		`{"inptu":"q"}`:           "fields_json/inptu: is no field of a sample; known: input, target, choices, id, metadata, sandbox, files, setup",
		`{"input":5}`:             "fields_json/input: want a column's name",
		`{"input":{}}`:            "fields_json/input: column or template is required",
		`{"input":{"colum":"q"}}`: `fields_json/input: "colum" is not known; known: column, template, pattern, group, optional`,
		`{"input":{"column":5}}`:  "fields_json/input: column cannot be a JSON number",
		`{"input":{"column":"q","optional":"yes"}}`: "fields_json/input: optional cannot be a JSON string",
		`{"input":{"column":"q","template":"{q}"}}`: "fields_json/input: template stands alone",
		`{"input":{"column":"q","group":1}}`:        "fields_json/input: group needs a pattern",
		`{"metadata":[1]}`:                          "fields_json/metadata: want a list of columns' names",
		`{"metadata":5}`:                            "fields_json/metadata: want a list of columns",
		`{"metadata":{"k":null}}`:                   "fields_json/metadata: k: want a source",
		`{"metadata":{"k":{"x":1}}}`:                `fields_json/metadata: k: "x" is not known`,
	} {
		_, err := dataset.ParseFields([]byte(given))
		require.ErrorContains(t, err, want)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST))
	}
}

func TestSourcesThatCannotWorkFailBeforeReading(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{"input":{"template":"a } b"}}`:                        "fields_json/input: the template has a } at byte 2 that closes nothing",
		`{"input":{"template":"a {q"}}`:                         "fields_json/input: the template has a { at byte 2 that is not closed",
		`{"input":{"template":"{q {r}}"}}`:                      "is not closed",
		`{"input":{"template":"{}"}}`:                           "names no column at byte 0",
		`{"target":{"column":"a","pattern":"("}}`:               `fields_json/target: pattern "("`,
		`{"target":{"column":"a","pattern":"(x)","group":2}}`:   `the pattern "(x)" has no group 2`,
		`{"target":{"column":"a","pattern":"(x)","group":"y"}}`: `has no group y`,
		`{"metadata":{"k":{"column":"a","pattern":"["}}}`:       "fields_json/metadata/k: ",
	} {
		fields, err := dataset.ParseFields([]byte(given))
		require.NoError(t, err)
		_, err = read(t.Context(), strings.NewReader(""), dataset.Options{Format: dataset.JSONLines, Fields: fields})
		require.ErrorContains(t, err, want)
	}
}

func FuzzSource(f *testing.F) {
	f.Add("{q}{{}} {r}", "(#+) (?P<n>\\d)", "n", "a ## 5")
	f.Add("}", "[", "1", "")
	f.Fuzz(func(t *testing.T, template, pattern, group, cell string) {
		if len(pattern) > 40 || len(cell) > 20 {
			t.Skip("small enough that no search runs long")
		}
		for _, source := range []dataset.Source{{Template: template}, {Column: "q", Pattern: pattern, Group: group}} {
			rows := strings.NewReader("q,r\n\"" + strings.ReplaceAll(cell, `"`, `""`) + "\",x\n")
			d, err := read(t.Context(), rows, dataset.Options{Format: dataset.CSV, Fields: dataset.Fields{Input: &source}})
			if err == nil && len(d.Samples) == 1 && source.Template != "" && !strings.ContainsAny(template, "{}") {
				require.Equal(t, template, d.Samples[0].Text, "a template without braces is text")
			}
		}
	})
}
