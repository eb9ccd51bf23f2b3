package spool_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
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
			s := spool.New(tt.limit, nil)
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
		s := spool.New(limit, nil)
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
	s := spool.New(100, nil)
	c := s.Read(0, 10)
	require.NotNil(t, c.More)
	_, _ = s.Write([]byte("x"))
	waittest.For(t, c.More, "the wake for what was written")
	c = s.Read(0, 10)
	assert.Equal(t, "x", string(c.Data))
	c = s.Read(1, 10)
	s.Close()
	waittest.For(t, c.More, "the wake for the end")
	assert.True(t, s.Read(1, 10).End)
}

func TestWhatIsHeldIsNotPushedOut(t *testing.T) {
	t.Parallel()
	s := spool.New(10, nil)
	slow, fast := s.Hold(0), s.Hold(0)
	all := []byte("abcdefghijklmnopqrstuvwxyz")
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = s.Write(all)
		s.Close()
	}()
	fast.Release()
	fast.Release()
	var read []byte
	for at := int64(0); ; {
		c := s.Read(at, 3)
		require.Zero(t, c.Skipped)
		read = append(read, c.Data...)
		at = c.Offset + int64(len(c.Data))
		slow.Advance(at)
		if c.End {
			break
		}
		if c.More != nil {
			waittest.For(t, c.More, "what is written next")
		}
	}
	assert.Equal(t, string(all), string(read))
	waittest.For(t, written, "the end of the writing")
}

func TestAWriterWaitsForAHoldUntilItEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*spool.Spool, *spool.Hold){
		"released":    func(_ *spool.Spool, h *spool.Hold) { h.Release() },
		"advanced":    func(_ *spool.Spool, h *spool.Hold) { h.Advance(1000) },
		"in a hurry":  func(s *spool.Spool, _ *spool.Hold) { s.Hasten() },
		"none at all": func(s *spool.Spool, h *spool.Hold) { s.Hasten(); h.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spool.New(10, nil)
			h := s.Hold(0)
			written := make(chan struct{})
			go func() {
				defer close(written)
				_, _ = s.Write(make([]byte, 100))
			}()
			require.Eventually(t, func() bool { return s.Total() == 10 }, waittest.Bound, time.Millisecond)
			end(s, h)
			waittest.For(t, written, "the end of the writing")
			assert.EqualValues(t, 100, s.Total())
			assert.EqualValues(t, 10, s.Kept())
		})
	}
}

func TestASpoolThatKeepsNothingHoldsNothing(t *testing.T) {
	t.Parallel()
	s := spool.New(0, nil)
	h := s.Hold(0)
	defer h.Release()
	_, _ = s.Write([]byte("abc"))
	assert.EqualValues(t, 3, s.Read(0, 10).Skipped)
}

func TestDropLeavesAnExplicitGap(t *testing.T) {
	t.Parallel()
	s := spool.New(100, nil)
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

func TestSpoolsShareABudget(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	var old *spool.Spool
	evicted := 0
	budget := spool.NewBudget(mib, func() bool {
		if old == nil {
			return false
		}
		old.Drop()
		old = nil
		evicted++
		return true
	})
	fill := func(n int) *spool.Spool {
		s := spool.New(10*mib, budget)
		_, _ = s.Write(bytes.Repeat([]byte("x"), n))
		return s
	}
	old = fill(mib)
	assert.EqualValues(t, mib, old.Kept())
	first := fill(mib / 2)
	assert.EqualValues(t, mib/2, first.Kept(), "the one that has ended makes room")
	assert.Equal(t, 1, evicted)
	second := fill(mib)
	_, _ = second.Write([]byte("the end"))
	assert.EqualValues(t, mib+7, second.Total())
	assert.Less(t, second.Kept(), int64(mib), "nothing makes room, so it keeps less")
	assert.LessOrEqual(t, first.Kept()+second.Kept(), int64(mib+2*spool.Floor))
	data, cut := second.Joined(10 * mib)
	assert.Positive(t, cut, "and says so")
	assert.True(t, bytes.HasSuffix(data, []byte("the end")))
	second.Settle()
	assert.EqualValues(t, mib+spool.Floor/2, first.Kept()+second.Kept(), "once it has ended, all of it counts")
	data, _ = second.Joined(10 * mib)
	assert.True(t, bytes.HasSuffix(data, []byte("the end")), "what it keeps less is not its end")
	second.Drop()
	first.Drop()
	assert.EqualValues(t, mib, fill(mib).Kept(), "what was dropped is there for others")
}

// Bytes that a reader has not read when the last of them was written are not trimmed. They are when it has left.
func TestWhatIsHeldAtTheEndSettlesLater(t *testing.T) {
	t.Parallel()
	s := spool.New(spool.Floor, spool.NewBudget(0, func() bool { return false }))
	hold := s.Hold(0)
	_, _ = s.Write(bytes.Repeat([]byte("x"), spool.Floor))
	s.Close()
	s.Settle()
	assert.EqualValues(t, spool.Floor, s.Kept())
	assert.True(t, s.Held())
	hold.Advance(spool.Floor)
	assert.False(t, s.Held(), "all is taken")
	hold.Release()
	assert.Zero(t, s.Kept(), "the budget has no room")
	hold.Release()
	assert.EqualValues(t, spool.Floor, s.Total())
}
