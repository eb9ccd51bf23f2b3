package param_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/param"
)

var list = param.List{
	{Name: "where", Type: param.String, Enum: []string{`"begin"`, `"end"`}, Default: json.RawMessage(`"end"`), Description: "Where."},
	{Name: "strict", Type: param.Boolean, Description: "Whether."},
	{Name: "count", Type: param.Integer, Required: true, Description: "How many."},
	{Name: "level", Type: param.Number, Description: "How much."},
	{Name: "words", Type: param.Strings, Description: "Which."},
	{Name: "all", Enum: []string{`"groups"`, "false"}, Description: "Either."},
}

type params struct {
	Where  string          `json:"where"`
	Strict bool            `json:"strict"`
	Count  int             `json:"count"`
	Level  float64         `json:"level"`
	Words  []string        `json:"words"`
	All    json.RawMessage `json:"all"`
}

func TestDecodeKeepsDefaults(t *testing.T) {
	t.Parallel()
	p := params{Where: "end", Level: 0.5}
	require.NoError(t, list.Decode([]byte(`{"count": 3, "words": ["a"], "level": null, "all": false}`), &p))
	assert.Equal(t, params{Where: "end", Count: 3, Level: 0.5, Words: []string{"a"}, All: json.RawMessage("false")}, p)
}

func TestDecodeNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{"count":1,"wher":"end"}`:       "params_json/wher: is not known; did you mean where? known are where, strict, count, level, words, all",
		`{}`:                             "params_json/count: is required",
		``:                               "params_json/count: is required",
		`{"count":1,"where":"middle"}`:   `params_json/where: is "middle"; allowed are "begin", "end"`,
		`{"count":1,"strict":"yes"}`:     `params_json/strict: is "yes"; want a boolean`,
		`{"count":1.5}`:                  "params_json/count: is 1.5; want an integer",
		`{"count":1,"words":["a",1]}`:    `params_json/words: is ["a",1]; want a list of strings`,
		`{"count":1,"words":["a",null]}`: `params_json/words: is ["a",null]; want a list of strings`,
		`{"count":1,"all":true}`:         `params_json/all: is true; allowed are "groups", false`,
		`[1]`:                            "params_json: want a JSON object",
		`{"count":`:                      "params_json: want a JSON object",
	} {
		err := list.Decode([]byte(given), &params{})
		require.ErrorContains(t, err, want)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), given)
	}
	require.ErrorContains(t, param.List{}.Decode([]byte(`{"x":1}`), nil), "params_json/x: is not known; there are no parameters")
}

func TestSchema(t *testing.T) {
	t.Parallel()
	assert.JSONEq(t, `{
		"type": "object",
		"properties": {
			"where": {"type": "string", "description": "Where.", "default": "end", "enum": ["begin", "end"]},
			"strict": {"type": "boolean", "description": "Whether."},
			"count": {"type": "integer", "description": "How many."},
			"level": {"type": "number", "description": "How much."},
			"words": {"type": "array", "items": {"type": "string"}, "description": "Which."},
			"all": {"description": "Either.", "enum": ["groups", false]}
		},
		"required": ["count"],
		"additionalProperties": false
	}`, string(list.Schema()))
	assert.JSONEq(t, `{"type":"object","properties":{},"additionalProperties":false}`, string(param.List{}.Schema()))
}
