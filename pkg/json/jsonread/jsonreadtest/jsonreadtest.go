// Package jsonreadtest compares jsonread with encoding/json, for the types of jsonread's users.
package jsonreadtest

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// Alike reads a document with both and fails the test unless they agree, on the value or on the error.
func Alike[T any](t testing.TB, doc []byte) {
	t.Helper()
	var read, want T
	err, wantErr := jsonread.Unmarshal(doc, &read), json.Unmarshal(doc, &want)
	if !reflect.DeepEqual(wantErr, err) {
		t.Fatalf("%q fails with %v, not with %v", doc, err, wantErr)
	}
	if err == nil && !reflect.DeepEqual(want, read) {
		t.Fatalf("%q is %#v, not %#v", doc, read, want)
	}
}
