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

	"github.com/evalfleet/evalfleet/pkg/waittest"
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

// All parts of a body go out in one write with the head before them, and none once it is closed.
func TestABodyWritesItselfAfterAHead(t *testing.T) {
	t.Parallel()
	type inMemory interface {
		io.ReadCloser
		Len() int
		WriteAfter(head []byte, w io.Writer) error
	}
	b := buffer.New()
	b.Bytes = append(b.Bytes, "abcd"...)
	reader, _ := b.Reader(b.Bytes[:2], []byte("-"), b.Bytes[2:]).(inMemory)
	closed, _ := b.Reader(b.Bytes).(inMemory)
	b.Release()
	require.NotNil(t, reader)
	assert.Equal(t, 5, reader.Len())
	var got strings.Builder
	require.NoError(t, reader.WriteAfter([]byte("head "), &got))
	assert.Equal(t, "head ab-cd", got.String())
	assert.Zero(t, reader.Len())
	n, err := io.Copy(io.Discard, reader)
	require.NoError(t, err)
	assert.Zero(t, n, "it has been read")
	require.NoError(t, closed.Close())
	require.ErrorIs(t, closed.WriteAfter(nil, io.Discard), http.ErrBodyReadAfterClose)
	require.NoError(t, reader.Close())
	assert.Nil(t, b.Bytes)
}

// blocked is a connection that takes nothing until the channel is closed.
type blocked struct{ begun, open chan struct{} }

func (b blocked) Write(p []byte) (int, error) {
	select {
	case b.begun <- struct{}{}:
	default:
	}
	<-b.open
	return len(p), nil
}

// What is still written when all users have left is no other body's memory.
func TestABodyIsKeptUntilItIsWritten(t *testing.T) {
	t.Parallel()
	b := buffer.New()
	b.Bytes = append(b.Bytes, "abcd"...)
	reader := b.Reader(b.Bytes)
	to, written := blocked{make(chan struct{}, 1), make(chan struct{})}, make(chan error, 1)
	go func() { written <- reader.(interface{ WriteAfter([]byte, io.Writer) error }).WriteAfter(nil, to) }()
	waittest.For(t, to.begun, "the write")
	b.Release()
	require.NoError(t, reader.Close())
	assert.Equal(t, "abcd", string(b.Bytes), "it is still written")
	close(to.open)
	require.NoError(t, waittest.For(t, written, "the end of the write"))
	assert.Nil(t, b.Bytes)
}

// A short body does not hold the memory of a long one, and an announced length costs nothing by itself. Kept memory has
// less than twice the size that is asked for.
func TestABufferIsAboutAsLongAsItsBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ length, size, most int }{{100, 100, 8 << 10}, {100_000, 100_000, 256 << 10}, {32 << 20, 100, 2 << 20}, {-1, 100, 32 << 10}} {
		b := buffer.New()
		require.NoError(t, b.Fill(strings.NewReader(strings.Repeat("x", c.size)), int64(c.length), 64<<20))
		assert.Less(t, cap(b.Bytes), c.most, "memory that grew by append is kept among that of the next lower power of two")
		b.Release()
	}
}
