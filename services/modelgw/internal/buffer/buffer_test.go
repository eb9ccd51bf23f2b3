package buffer_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
)

func TestABodyIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	for _, length := range []int64{-1, 0, 10, 50_000} {
		for _, size := range []int{0, 1, 50_000} {
			b := buffer.New()
			text := strings.Repeat("x", size)
			require.NoError(t, b.Fill(iotest.HalfReader(strings.NewReader(text)), length, 50_000))
			assert.Equal(t, text, string(b.Bytes))
			b.Release()
		}
	}
}

func TestABodyThatIsTooLargeOrBreaksOffIsNone(t *testing.T) {
	t.Parallel()
	b := buffer.New()
	defer b.Release()
	broken := errors.New("broken")
	require.ErrorIs(t, b.Fill(iotest.ErrReader(broken), -1, 4), broken)
	require.ErrorIs(t, b.Fill(nil, 5, 4), buffer.ErrTooLarge, "what says that it is too large is not read")
	require.ErrorIs(t, b.Fill(strings.NewReader("12345"), -1, 4), buffer.ErrTooLarge)
}

// A closed reader returns nothing: its buffer may be another body's by then.
func TestABodyIsNotReadAfterItsEnd(t *testing.T) {
	t.Parallel()
	b := buffer.New()
	b.Bytes = append(b.Bytes, "abcdef"...)
	reader := b.Reader(b.Bytes[:2], []byte("-"), b.Bytes[4:])
	again := b.Reader(b.Bytes)
	b.Release()
	text, err := io.ReadAll(iotest.OneByteReader(reader))
	require.NoError(t, err, "the reader is a use of its own")
	assert.Equal(t, "ab-ef", string(text))
	require.NoError(t, reader.Close())
	require.NoError(t, reader.Close())
	_, err = reader.Read(make([]byte, 1))
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	assert.NotNil(t, b.Bytes, "there is another user")
	require.NoError(t, again.Close())
	assert.Nil(t, b.Bytes)
}
