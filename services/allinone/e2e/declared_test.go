package e2e_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest"
)

// Functions of the package for Python are described by their signatures.
func TestGoldenDeclaredTypes(t *testing.T) {
	t.Parallel()
	program, env := python(t)
	cases := goldentest.Load(t, "tools/schema_declared.json")
	var given []any
	for _, c := range cases {
		given = append(given, c.Fields)
	}
	described := exec.CommandContext(t.Context(), program, "testdata/declared.py")
	described.Env = env
	text, err := json.Marshal(given)
	require.NoError(t, err)
	described.Stdin = bytes.NewReader(text)
	var problems bytes.Buffer
	described.Stderr = &problems
	out, err := described.Output()
	require.NoError(t, err, problems.String())
	var got []struct {
		Schema          any
		Refused, Unread string
	}
	require.NoError(t, json.Unmarshal(out, &got))
	of := map[string]int{}
	for i, c := range cases {
		of[c.ID] = i
	}
	goldentest.Run(t, "schema_declared", cases, func(t *goldentest.T, c goldentest.Case) {
		one := got[of[c.ID]]
		if one.Unread != "" {
			t.Skipf("no driver for the type %q", one.Unread)
		}
		require.Empty(t, one.Refused)
		t.Equal(c.At("parameters"), one.Schema)
	})
}
