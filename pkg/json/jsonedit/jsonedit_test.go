package jsonedit_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/json/jsonedit"
)

func upper(value []byte) []byte { return bytes.ToUpper(value) }

func TestAMemberIsChangedAndAllElseStays(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		`{"a" : "x" , "b":1.0}`:    `{"a" : "X" , "b":1.0}`,
		"{\n\"b\":[ ],\"a\":\"\"}": "{\n\"b\":[ ],\"a\":\"\"}",
		`{"\u0061":"x"}`:           `{"\u0061":"X"}`,
		`{"b":{"a":"x"}}`:          `{"b":{"a":"x"}}`,
		`{"a":"x","a":"x"}`:        `{"a":"x","a":"x"}`,
		`["a"]`:                    `["a"]`,
		`{"a":"x"`:                 `{"a":"x"`,
		``:                         ``,
	} {
		assert.Equal(t, want, string(jsonedit.Member([]byte(object), "a", upper)), object)
	}
}

func TestElementsAreChangedAndLeftOut(t *testing.T) {
	t.Parallel()
	edit := func(value []byte) []byte {
		switch string(value) {
		case `"x"`:
			return []byte(`"y"`)
		case `"no"`:
			return nil
		default:
			return value
		}
	}
	for list, want := range map[string]string{
		`[ 1.0, {"x" : 1} ]`:       `[ 1.0, {"x" : 1} ]`,
		`[1.0,"x" , 2]`:            `[1.0,"y" , 2]`,
		`[ "no", 1.0 , "no", 2 ]`:  `[ 1.0, 2 ]`,
		`[1,"no", "no" , "x", 2]`:  `[1 , "y", 2]`,
		`["no"]`:                   `[]`,
		"[\n \"no\" ,\n \"no\"\n]": `[]`,
		`[ "no" `:                  `[`,
		`[ ]`:                      `[ ]`,
		`[]`:                       `[]`,
		`"x"`:                      `"x"`,
	} {
		assert.Equal(t, want, string(jsonedit.List([]byte(list), edit)), list)
	}
}

func TestADocumentInWhichNothingChangesIsTheSame(t *testing.T) {
	t.Parallel()
	document := []byte(`{"a": [1, 2]}`)
	nothing := func(value []byte) []byte { return value }
	got := jsonedit.Member(document, "a", func(list []byte) []byte { return jsonedit.List(list, nothing) })
	assert.Same(t, &document[0], &got[0])
}

func TestAMemberIsLeftOut(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		`{"a":1}`:                     `{}`,
		`{"a" : {"b":":"} , "c":2}`:   `{ "c":2}`,
		`{"c":2 , "a":[1,":\"",2] }`:  `{"c":2 }`,
		`{"c":2,"a":"a:\"b","d":3.0}`: `{"c":2,"d":3.0}`,
		`{"\u0061":1,"d":3}`:          `{"d":3}`,
		`{"c":{"a":1}}`:               `{"c":{"a":1}}`,
		`{"a":1,"a":2}`:               `{"a":1,"a":2}`,
	} {
		assert.Equal(t, want, string(jsonedit.Without([]byte(object), "a")), object)
	}
}
