package jsoncase_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/json/jsoncase"
)

func TestCamelSpellsMembersAndLeavesTheJSONOfOthers(t *testing.T) {
	t.Parallel()
	foreign := map[string]bool{"toolArgs": true}
	for doc, want := range map[string]string{
		`{"a_b": 1, "c": [{"d_e_f": "x_y"}]}`:   `{"aB":1,"c":[{"dEF":"x_y"}]}`,
		`{"tool_args": {"a_b": 1.0}, "x_y": 1}`: `{"toolArgs":{"a_b": 1.0},"xY":1}`,
		`{"a_b": {"c_d": {"e_f": {"g_h": 1}}}}`: `{"aB":{"cD":{"eF":{"g_h": 1}}}}`,
		`{"camelCase": {"text": "\"a_b\": 1"}}`: `{"camelCase": {"text": "\"a_b\": 1"}}`,
		`{"a_b": `:                              `{"a_b": `,
	} {
		assert.Equal(t, want, string(jsoncase.Camel([]byte(doc), 3, foreign)))
	}
}

func FuzzCamel(f *testing.F) {
	f.Add([]byte(`{"a_b":[1,{"c_d":null}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		spelled := jsoncase.Camel(doc, 8, nil)
		assert.Equal(t, json.Valid(doc), json.Valid(spelled))
		assert.Equal(t, string(spelled), string(jsoncase.Camel(spelled, 8, nil)))
	})
}
