package jsonwrite_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

func TestMarshalEncodesWhatHasAJSONForm(t *testing.T) {
	assert.JSONEq(t, `{"a":[1,"x",null]}`, string(jsonwrite.Marshal(map[string]any{"a": []any{1, "x", nil}})))
	assert.Nil(t, jsonwrite.Marshal(math.Inf(1)))
}
