package jsonwrite_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

func TestMarshalEncodesWhatHasAJSONForm(t *testing.T) {
	assert.JSONEq(t, `{"a":[1,"x",null]}`, string(jsonwrite.Marshal(map[string]any{"a": []any{1, "x", nil}})))
	assert.Nil(t, jsonwrite.Marshal(math.Inf(1)))
}

func TestOverlayReplacesMembersAndLeavesTheOthers(t *testing.T) {
	for object, want := range map[string]string{
		`{"z": [1.0], "b": 1, "a": 2}`: `{"a":2,"b":"new","z":[1.0]}`, `{}`: `{"b":"new"}`, `null`: `{"b":"new"}`, `[]`: `{"b":"new"}`, ``: `{"b":"new"}`,
	} {
		assert.Equal(t, want, string(jsonwrite.Overlay(json.RawMessage(object), map[string]json.RawMessage{"b": json.RawMessage(`"new"`)})), object)
	}
}
