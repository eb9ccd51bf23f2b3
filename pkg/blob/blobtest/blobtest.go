// Package blobtest is the suite that every blob store passes.
package blobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// Harness describes how to get the store under test.
type Harness struct {
	// New returns an empty store that takes bodies of at most maxBytes.
	New func(t *testing.T, maxBytes int64) blob.Store
}

const (
	project  = "p"
	maxBytes = 4 << 20
)

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	tests := []struct {
		name string
		run  func(*testing.T, blob.Store)
	}{
		{"BodiesComeBackAsTheyWere", bodiesComeBackAsTheyWere},
		{"RangesOfABody", rangesOfABody},
		{"PuttingAgainIsTheSame", puttingAgainIsTheSame},
		{"ManyPutOneBodyAtOnce", manyPutOneBodyAtOnce},
		{"ProjectsNeverMeet", projectsNeverMeet},
		{"BodiesAreBounded", bodiesAreBounded},
		{"BrokenBodyIsNotKept", brokenBodyIsNotKept},
		{"EndedContextKeepsNothing", endedContextKeepsNothing},
		{"NamesAreConfined", namesAreConfined},
		{"MediaTypes", mediaTypes},
		{"Delete", deleted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(t, h.New(t, maxBytes))
		})
	}
}

func put(t *testing.T, s blob.Store, body string) blob.Ref {
	t.Helper()
	ref, err := s.Put(t.Context(), project, strings.NewReader(body), "")
	require.NoError(t, err)
	return ref
}

func get(t *testing.T, s blob.Store, hash string, offset, limit int64) []byte {
	t.Helper()
	r, _, err := s.Get(t.Context(), project, hash, offset, limit)
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.Close()) }()
	body, err := io.ReadAll(r)
	require.NoError(t, err)
	return body
}

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// random returns n bytes that are the same in every run.
func random(n int) []byte {
	body := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(body)
	return body
}

func bodiesComeBackAsTheyWere(t *testing.T, s blob.Store) {
	for _, size := range []int{0, 1, 4096, 64<<10 + 1, maxBytes} {
		body := random(size)
		want := blob.Ref{Hash: hashOf(body), Size: int64(size), MediaType: "image/png"}
		ref, err := s.Put(t.Context(), project, iotest.HalfReader(bytes.NewReader(body)), "image/png")
		require.NoError(t, err)
		assert.Equal(t, want, ref)
		ref, err = s.Stat(t.Context(), project, want.Hash)
		require.NoError(t, err)
		assert.Equal(t, want, ref)
		r, ref, err := s.Get(t.Context(), project, want.Hash, 0, 0)
		require.NoError(t, err)
		assert.Equal(t, want, ref)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		assert.NoError(t, r.Close())
		assert.Equal(t, want.Hash, hashOf(got))
	}
}

func rangesOfABody(t *testing.T, s blob.Store) {
	ref := put(t, s, "0123456789")
	tests := []struct {
		offset, limit int64
		want          string
		err           error
	}{
		{0, 0, "0123456789", nil},
		{0, 4, "0123", nil},
		{4, 0, "456789", nil},
		{4, 3, "456", nil},
		{9, 1, "9", nil},
		{9, 99, "9", nil},
		{10, 0, "", nil},
		{10, 5, "", nil},
		{11, 0, "", blob.ErrRange},
		{-1, 0, "", blob.ErrRange},
		{0, -1, "", blob.ErrRange},
		{1 << 62, 1 << 62, "", blob.ErrRange},
		{1, 1<<63 - 1, "123456789", nil},
	}
	for _, tt := range tests {
		if tt.err != nil {
			_, _, err := s.Get(t.Context(), project, ref.Hash, tt.offset, tt.limit)
			assert.ErrorIs(t, err, tt.err, "%d %d", tt.offset, tt.limit)
			continue
		}
		assert.Equal(t, tt.want, string(get(t, s, ref.Hash, tt.offset, tt.limit)), "%d %d", tt.offset, tt.limit)
	}
}

func puttingAgainIsTheSame(t *testing.T, s blob.Store) {
	first := put(t, s, "body")
	assert.Equal(t, first, put(t, s, "body"))
	assert.Equal(t, "body", string(get(t, s, first.Hash, 0, 0)))
}

func manyPutOneBodyAtOnce(t *testing.T, s blob.Store) {
	body := random(100_000)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			ref, err := s.Put(t.Context(), project, bytes.NewReader(body), "")
			if !assert.NoError(t, err) {
				return
			}
			r, _, err := s.Get(t.Context(), project, ref.Hash, 0, 0)
			if !assert.NoError(t, err, "it is there for who was answered") {
				return
			}
			got, err := io.ReadAll(r)
			assert.NoError(t, err)
			assert.NoError(t, r.Close())
			assert.Equal(t, ref.Hash, hashOf(got))
		})
	}
	waittest.Return(t, wg.Wait, "every put of the body to return")
}

func projectsNeverMeet(t *testing.T, s blob.Store) {
	ref := put(t, s, "secret")
	_, err := s.Stat(t.Context(), "q", ref.Hash)
	assert.ErrorIs(t, err, blob.ErrNotFound)
	_, _, err = s.Get(t.Context(), "q", ref.Hash, 0, 0)
	assert.ErrorIs(t, err, blob.ErrNotFound)
	_, err = s.Put(t.Context(), "q", strings.NewReader("secret"), "")
	require.NoError(t, err)
	require.NoError(t, s.Delete(t.Context(), "q", ref.Hash))
	assert.Equal(t, "secret", string(get(t, s, ref.Hash, 0, 0)))
}

func bodiesAreBounded(t *testing.T, s blob.Store) {
	body := random(maxBytes + 1)
	_, err := s.Put(t.Context(), project, bytes.NewReader(body), "")
	assertTooLarge(t, err)
	_, err = s.Stat(t.Context(), project, hashOf(body))
	assert.ErrorIs(t, err, blob.ErrNotFound)

	endless := io.MultiReader(bytes.NewReader(body), iotest.ErrReader(errors.New("read on past the limit")))
	_, err = s.Put(t.Context(), project, endless, "")
	assertTooLarge(t, err)
}

func assertTooLarge(t *testing.T, err error) {
	t.Helper()
	large, ok := errors.AsType[*blob.TooLargeError](err)
	if assert.True(t, ok, "%v", err) {
		assert.EqualValues(t, maxBytes, large.LimitBytes)
	}
}

func brokenBodyIsNotKept(t *testing.T, s blob.Store) {
	broken := errors.New("connection lost")
	_, err := s.Put(t.Context(), project, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), "")
	assert.ErrorIs(t, err, broken)
	_, err = s.Stat(t.Context(), project, hashOf([]byte("half")))
	assert.ErrorIs(t, err, blob.ErrNotFound)
}

func endedContextKeepsNothing(t *testing.T, s blob.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	ending := io.MultiReader(strings.NewReader("half"), readerFunc(func([]byte) (int, error) {
		cancel()
		return 0, nil
	}))
	_, err := s.Put(ctx, project, ending, "")
	assert.ErrorIs(t, err, context.Canceled)
	hash := hashOf([]byte("half"))
	_, err = s.Stat(ctx, project, hash)
	assert.ErrorIs(t, err, context.Canceled)
	_, _, err = s.Get(ctx, project, hash, 0, 0)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, s.Delete(ctx, project, hash), context.Canceled)
	_, err = s.Stat(t.Context(), project, hash)
	assert.ErrorIs(t, err, blob.ErrNotFound)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func namesAreConfined(t *testing.T, s blob.Store) {
	ref := put(t, s, "body")
	for _, hash := range []string{
		"", "..", "../" + ref.Hash, strings.Repeat("../", 21) + "a", ref.Hash[:63], ref.Hash + "0", strings.ToUpper(ref.Hash),
		ref.Hash[:63] + "g", ref.Hash + "\n", "\x00" + ref.Hash[1:],
	} {
		_, err := s.Stat(t.Context(), project, hash)
		assert.ErrorIs(t, err, blob.ErrInvalid, "%q", hash)
		_, _, err = s.Get(t.Context(), project, hash, 0, 0)
		assert.ErrorIs(t, err, blob.ErrInvalid, "%q", hash)
		assert.ErrorIs(t, s.Delete(t.Context(), project, hash), blob.ErrInvalid, "%q", hash)
	}
	for _, name := range []string{"", ".", "..", "a/b", "../p", "/p", "P", "p\x00", "p\n", "-p", ".incoming", strings.Repeat("p", 64)} {
		_, err := s.Put(t.Context(), name, strings.NewReader("body"), "")
		assert.ErrorIs(t, err, blob.ErrInvalid, "%q", name)
		_, err = s.Stat(t.Context(), name, ref.Hash)
		assert.ErrorIs(t, err, blob.ErrInvalid, "%q", name)
	}
}

func mediaTypes(t *testing.T, s blob.Store) {
	kept := func(given string) string {
		put, err := s.Put(t.Context(), project, strings.NewReader("body"), given)
		require.NoError(t, err)
		stat, err := s.Stat(t.Context(), project, put.Hash)
		require.NoError(t, err)
		assert.Equal(t, put, stat)
		return stat.MediaType
	}
	assert.Equal(t, blob.DefaultMediaType, kept(""))
	assert.Equal(t, "text/plain; charset=utf-8", kept("text/plain; charset=utf-8"))
	assert.Equal(t, "image/png", kept("image/png"), "the last one stands")
	assert.Equal(t, blob.DefaultMediaType, kept(""))
	for _, bad := range []string{"image/", "a b", "text/plain\r\nx: y", "text/plain; x=" + strings.Repeat("y", 300)} {
		_, err := s.Put(t.Context(), project, strings.NewReader("other"), bad)
		assert.ErrorIs(t, err, blob.ErrInvalid, "%q", bad)
	}
}

func deleted(t *testing.T, s blob.Store) {
	ref := put(t, s, "body")
	r, _, err := s.Get(t.Context(), project, ref.Hash, 1, 0)
	require.NoError(t, err)
	require.NoError(t, s.Delete(t.Context(), project, ref.Hash))
	require.NoError(t, s.Delete(t.Context(), project, ref.Hash))
	_, err = s.Stat(t.Context(), project, ref.Hash)
	assert.ErrorIs(t, err, blob.ErrNotFound)
	_, _, err = s.Get(t.Context(), project, ref.Hash, 0, 0)
	assert.ErrorIs(t, err, blob.ErrNotFound)
	rest, err := io.ReadAll(r)
	assert.NoError(t, err, "who reads already reads on")
	assert.Equal(t, "ody", string(rest))
	assert.NoError(t, r.Close())
	assert.Equal(t, ref, put(t, s, "body"), "and it may come again")
}
