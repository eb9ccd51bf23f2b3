package buffer_test

import (
	"bytes"
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
	long := strings.Repeat("x", 5_000)
	b.Bytes = append(b.Bytes, "abcdef"+long...)
	reader := b.Reader(b.Bytes[:2], []byte("-"), b.Bytes[4:])
	again := b.Reader(b.Bytes)
	b.Release()
	text, err := io.ReadAll(iotest.OneByteReader(reader))
	require.NoError(t, err, "the reader is a use of its own")
	assert.Equal(t, "ab-ef"+long, string(text))
	require.NoError(t, reader.Close())
	require.NoError(t, reader.Close())
	_, err = reader.Read(make([]byte, 1))
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	assert.NotNil(t, b.Bytes, "there is another user")
	require.NoError(t, again.Close())
	assert.Nil(t, b.Bytes)
}

// All parts of a long body go out in one write, and none once it is closed.
func TestABodyWritesItself(t *testing.T) {
	t.Parallel()
	b := buffer.New()
	long := strings.Repeat("x", 5_000)
	b.Bytes = append(b.Bytes, long+"ab"...)
	reader, closed := b.Reader(b.Bytes[:5_000], []byte("-"), b.Bytes[5_000:]), b.Reader(b.Bytes)
	b.Release()
	var got strings.Builder
	n, err := reader.(io.WriterTo).WriteTo(&got)
	require.NoError(t, err)
	assert.EqualValues(t, 5_003, n)
	assert.Equal(t, long+"-ab", got.String())
	n, err = io.Copy(io.Discard, reader)
	require.NoError(t, err)
	assert.Zero(t, n, "it has been read")
	require.NoError(t, closed.Close())
	_, err = closed.(io.WriterTo).WriteTo(io.Discard)
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	require.NoError(t, reader.Close())
	assert.Nil(t, b.Bytes)
}

// net/http sends a short body in one write with its header if it is in memory in a form that it knows. The bytes are a
// copy: nothing says when they have been sent.
func TestAShortBodyIsACopyInMemory(t *testing.T) {
	t.Parallel()
	b := buffer.New()
	b.Bytes = append(b.Bytes, "abcd"...)
	reader := b.Reader(b.Bytes[:2], []byte("-"), b.Bytes[2:])
	assert.IsType(t, io.NopCloser(&bytes.Reader{}), reader)
	clear(b.Bytes)
	b.Release()
	text, err := io.ReadAll(reader)
	require.NoError(t, err)
	assert.Equal(t, "ab-cd", string(text))
}

// A short body does not hold the memory of a long one, and an announced length costs nothing by itself. Kept memory has
// less than twice the size that is asked for.
func TestABufferIsAboutAsLongAsItsBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ length, size, most int }{{100, 100, 4 << 10}, {100_000, 100_000, 128 << 10}, {32 << 20, 100, 1 << 20}, {-1, 100, 16 << 10}} {
		b := buffer.New()
		require.NoError(t, b.Fill(strings.NewReader(strings.Repeat("x", c.size)), int64(c.length), 64<<20))
		assert.Less(t, cap(b.Bytes), 2*c.most)
		b.Release()
	}
}
