package blobclient_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/blob/blobclient"
	"github.com/evalfleet/evalfleet/pkg/blob/blobserver"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcserver/grpcservertest"
)

func TestABodyGoesToTheServerAndComesBack(t *testing.T) {
	t.Parallel()
	kept, err := disk.Open(disk.Config{Dir: t.TempDir(), MaxBytes: 8 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, kept.Close()) })
	conn := grpcservertest.Serve(t, "test", func(r grpc.ServiceRegistrar) { blobserver.New(kept).Register(r) })
	store := &blobclient.Store{Client: blobv1.NewBlobServiceClient(conn)}
	for _, size := range []int{0, 1, 1 << 20, 5<<20 + 1} {
		text := strings.Repeat("x", size)
		ref, err := store.Put(t.Context(), "default", strings.NewReader(text), "text/plain")
		require.NoError(t, err)
		assert.EqualValues(t, size, ref.Size)
		for limit, want := range map[int64]int{0: size, 1: min(1, size)} {
			body, got, err := store.Get(t.Context(), "default", ref.Hash, 0, limit)
			require.NoError(t, err)
			assert.Equal(t, ref, got)
			read, err := io.ReadAll(body)
			require.NoError(t, err)
			require.NoError(t, body.Close())
			assert.Len(t, read, want)
		}
	}
	_, _, err = store.Get(t.Context(), "default", strings.Repeat("0", 64), 0, 0)
	require.ErrorIs(t, err, blob.ErrNotFound)
	_, err = store.Put(t.Context(), "default", strings.NewReader(strings.Repeat("x", 9<<20)), "")
	require.ErrorContains(t, err, "8388608")
}
