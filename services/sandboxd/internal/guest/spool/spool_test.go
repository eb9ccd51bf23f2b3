package spool_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/spool"
)

func TestJoinedKeepsHeadAndTailAndSaysWhereItCut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		limit  int64
		answer int64
		writes []string
		want   string
		cutAt  int64
	}{
		{10, 10, nil, "", -1},
		{10, 10, []string{"abc"}, "abc", -1},
		{10, 10, []string{"abcde", "fghij"}, "abcdefghij", -1},
		{10, 10, []string{"abcde", "fghijk"}, "abcdeghijk", 5},
		{10, 10, []string{"abcdefghijklmnopqrstuvwxyz"}, "abcdevwxyz", 5},
		{5, 10, []string{"abcdefgh"}, "abcgh", 3},
		{10, 4, []string{"abcdefgh"}, "abgh", 2},
		{10, 4, []string{"abc", "d"}, "abcd", -1},
		{100, 4, []string{"abcdefgh"}, "abgh", 2},
		{0, 10, []string{"abc"}, "", 0},
		{1, 10, []string{"abc"}, "a", 1},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d/%d/%v", tt.limit, tt.answer, tt.writes), func(t *testing.T) {
			t.Parallel()
			s := spool.New(tt.limit)
			var total int64
			for _, w := range tt.writes {
				n, err := s.Write([]byte(w))
				require.NoError(t, err)
				total += int64(n)
			}
			got, cutAt := s.Joined(tt.answer)
			assert.Equal(t, tt.want, string(got))
			assert.Equal(t, tt.cutAt, cutAt)
			assert.Equal(t, total, s.Total(), "counts are true whatever is kept")
		})
	}
}

func TestReadersSeeEveryKeptByteOnceAndGapsExplicitly(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		limit := rng.Int64N(64)
		var all []byte
		s := spool.New(limit)
		for range rng.IntN(12) {
			p := make([]byte, rng.IntN(40))
			for i := range p {
				p[i] = byte(rng.IntN(256))
			}
			_, _ = s.Write(p)
			all = append(all, p...)
		}
		s.Close()
		var at int64
		for {
			c := s.Read(at, 1+rng.IntN(16))
			require.Equal(t, at+c.Skipped, c.Offset)
			require.True(t, bytes.Equal(all[c.Offset:c.Offset+int64(len(c.Data))], c.Data))
			at = c.Offset + int64(len(c.Data))
			if c.End {
				break
			}
			require.NotEmpty(t, c.Data, "a closed stream always goes on")
		}
		require.Equal(t, int64(len(all)), at)
	}
}

func TestMoreWakesAWaitingReader(t *testing.T) {
	t.Parallel()
	s := spool.New(100)
	c := s.Read(0, 10)
	require.NotNil(t, c.More)
	_, _ = s.Write([]byte("x"))
	<-c.More
	c = s.Read(0, 10)
	assert.Equal(t, "x", string(c.Data))
	c = s.Read(1, 10)
	s.Close()
	<-c.More
	assert.True(t, s.Read(1, 10).End)
}

func TestDropLeavesAnExplicitGap(t *testing.T) {
	t.Parallel()
	s := spool.New(100)
	_, _ = s.Write([]byte("hello"))
	s.Close()
	s.Drop()
	c := s.Read(0, 10)
	assert.Equal(t, int64(5), c.Skipped)
	assert.True(t, c.End)
	data, cutAt := s.Joined(10)
	assert.Empty(t, data)
	assert.Equal(t, int64(0), cutAt)
}
