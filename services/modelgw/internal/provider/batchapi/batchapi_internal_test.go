package batchapi

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func read(stream io.Reader, most int) (all []string, err error) {
	err = lines(stream, most, func(line []byte) error {
		all = append(all, string(line))
		return nil
	}, func(err error) error { return err })
	return all, err
}

func TestLinesThatAreTooLongAreSkipped(t *testing.T) {
	t.Parallel()
	const most = 200 << 10 // above the reader's own buffer
	long, fits := strings.Repeat("x", most+1), strings.Repeat("y", most-1)
	all, err := read(strings.NewReader("a\n\n  \n"+long+"\r\n"+fits+"\nlast"), most)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", fits, "last"}, all)
}

func TestAFileThatBreaksOffIsAFailure(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	all, err := read(io.MultiReader(strings.NewReader("a\nb"), failing{broken}), 100)
	assert.ErrorIs(t, err, broken)
	assert.Equal(t, "a", all[0])
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestOneLineMeansTheSame(t *testing.T) {
	t.Parallel()
	document := []byte("{\"a\":\r\n [1,\n2], \"b\": \"x\\ny\u00e9\"}")
	line := OneLine(document)
	assert.NotContains(t, string(line), "\n")
	assert.NotContains(t, string(line), "\r")
	assert.JSONEq(t, string(document), string(line))
	assert.Contains(t, string(document), "\n", "the original is not changed")
}

func FuzzResult(f *testing.F) {
	f.Add(`{"custom_id":"b-1","response":{"status_code":200,"body":{}}}`)
	f.Add(`{"custom_id":"b-1","response":null,"error":{"code":"batch_expired","message":"m"}}`)
	f.Add(`{"custom_id":"b-1","error":{"code":429,"message":"m"}}`)
	f.Add(`{"custom_id":"b-1","error":"text"}`)
	f.Fuzz(func(t *testing.T, line string) {
		result, ok := resultOf([]byte(line))
		if !ok {
			return
		}
		assert.NotEmpty(t, result.ID)
		if result.Status != 0 {
			assert.True(t, json.Valid(result.Body), "%q", result.Body)
		}
	})
}
