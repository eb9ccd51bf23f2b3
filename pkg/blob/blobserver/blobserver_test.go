package blobserver_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/blob/blobserver"
	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcserver/grpcservertest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	parent   = "projects/default"
	maxBytes = 8 << 20
)

func client(t *testing.T) blobv1.BlobServiceClient {
	t.Helper()
	store, err := disk.Open(disk.Config{Dir: t.TempDir(), MaxBytes: maxBytes})
	require.NoError(t, err)
	return blobv1.NewBlobServiceClient(grpcservertest.Serve(t, "test", blobserver.New(store).Register))
}

func body(size int) (content []byte, hash string) {
	content = bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
	sum := sha256.Sum256(content)
	return content, hex.EncodeToString(sum[:])
}

func upload(t *testing.T, c blobv1.BlobServiceClient, requests ...*blobv1.UploadBlobRequest) (string, int64, error) {
	t.Helper()
	stream, err := c.UploadBlob(waittest.Context(t))
	require.NoError(t, err)
	for _, r := range requests {
		if err := stream.Send(r); err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
	}
	ref, err := stream.CloseAndRecv()
	return ref.GetHash(), ref.GetSize(), rpcerr.FromStatus(err)
}

func download(t *testing.T, c blobv1.BlobServiceClient, hash string, offset int64) ([]byte, error) {
	t.Helper()
	stream, err := c.DownloadBlob(waittest.Context(t), &blobv1.DownloadBlobRequest{Parent: parent, Hash: hash, Offset: offset})
	require.NoError(t, err)
	var all []byte
	for first := true; ; first = false {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		assert.Equal(t, first, r.GetBlob() != nil, "the first chunk names the body")
		assert.LessOrEqual(t, len(r.GetChunk()), 1<<20)
		all = append(all, r.GetChunk()...)
	}
}

func TestWhatIsPutCanBeGot(t *testing.T) {
	t.Parallel()
	c := client(t)
	content, hash := body(3 << 20)
	ref, err := c.PutBlob(t.Context(), &blobv1.PutBlobRequest{Parent: parent, Content: content, MediaType: "text/plain"})
	require.NoError(t, err)
	assert.Equal(t, hash, ref.GetHash())

	got, err := c.GetBlob(t.Context(), &blobv1.GetBlobRequest{Parent: parent, Hash: hash})
	require.NoError(t, err)
	assert.True(t, bytes.Equal(content, got.GetContent()))
	assert.Equal(t, "text/plain", got.GetBlob().GetMediaType())

	part, err := c.GetBlob(t.Context(), &blobv1.GetBlobRequest{Parent: parent, Hash: hash, Offset: 10, Limit: 5})
	require.NoError(t, err)
	assert.Equal(t, "abcde", string(part.GetContent()))
	assert.Equal(t, int64(3<<20), part.GetBlob().GetSize())

	_, err = c.GetBlob(t.Context(), &blobv1.GetBlobRequest{Parent: "projects/other", Hash: hash})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "a body belongs to its project: %v", err)
}

func TestStreamsCarryAnySize(t *testing.T) {
	t.Parallel()
	c := client(t)
	for _, size := range []int{0, 1, 1 << 20, 5<<20 + 3} {
		content, hash := body(size)
		requests := []*blobv1.UploadBlobRequest{{Parent: parent}}
		for rest := content; len(rest) > 0; {
			n := min(len(rest), 1<<20)
			requests = append(requests, &blobv1.UploadBlobRequest{Chunk: rest[:n]})
			rest = rest[n:]
		}
		got, length, err := upload(t, c, requests...)
		require.NoError(t, err)
		assert.Equal(t, hash, got)
		assert.Equal(t, int64(size), length)
		back, err := download(t, c, hash, 0)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(content, back))
		tail, err := download(t, c, hash, int64(size))
		require.NoError(t, err)
		assert.Empty(t, tail)
	}
}

// A body that is not the one that was promised is not kept.
func TestABodyHasTheHashThatWasPromised(t *testing.T) {
	t.Parallel()
	c := client(t)
	content, hash := body(1 << 20)
	got, _, err := upload(t, c, &blobv1.UploadBlobRequest{Parent: parent, Hash: hash}, &blobv1.UploadBlobRequest{Chunk: content})
	require.NoError(t, err)
	assert.Equal(t, hash, got)

	part := sha256.Sum256(content[:1000])
	_, _, err = upload(t, c, &blobv1.UploadBlobRequest{Parent: parent, Hash: hash, Chunk: content[:1000]})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
	assert.ErrorContains(t, err, hash)
	_, err = download(t, c, hex.EncodeToString(part[:]), 0)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "%v", err)
}

func TestFaultsHaveTheirReasons(t *testing.T) {
	t.Parallel()
	c := client(t)
	big, hash := body(3<<20 + 1)
	_, err := c.PutBlob(t.Context(), &blobv1.PutBlobRequest{Parent: parent, Content: big})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE))
	assert.ErrorContains(t, err, "content is over 3145728 bytes; send more with UploadBlob")

	_, _, err = upload(t, c, &blobv1.UploadBlobRequest{Parent: parent, Chunk: big[:1<<20+1]})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_TOO_LARGE), "%v", err)
	_, _, err = upload(t, c)
	assert.ErrorContains(t, err, "the stream is empty; name a project in its first message")
	_, _, err = upload(t, c, &blobv1.UploadBlobRequest{Parent: parent}, &blobv1.UploadBlobRequest{Parent: parent})
	assert.ErrorContains(t, err, "parent, media_type and hash belong into the first message alone")
	chunk := &blobv1.UploadBlobRequest{Chunk: big[:1<<20]}
	_, _, err = upload(t, c, &blobv1.UploadBlobRequest{Parent: parent}, chunk, chunk, chunk, chunk, chunk, chunk, chunk, chunk, chunk)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_OUTPUT_LIMIT), "%v", err)

	_, err = c.GetBlob(t.Context(), &blobv1.GetBlobRequest{Parent: parent, Hash: hash})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND))
	assert.ErrorContains(t, err, "no body "+hash+" in this project; upload it first")
	_, err = download(t, c, hash, 0)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND))
	_, err = c.PutBlob(t.Context(), &blobv1.PutBlobRequest{Parent: "default", Content: []byte("x")})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST))
	_, err = c.PutBlob(t.Context(), &blobv1.PutBlobRequest{Parent: parent, Content: []byte("x"), MediaType: "no type"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
	ref, err := c.PutBlob(t.Context(), &blobv1.PutBlobRequest{Parent: parent, Content: []byte("x")})
	require.NoError(t, err)
	_, err = c.GetBlob(t.Context(), &blobv1.GetBlobRequest{Parent: parent, Hash: ref.GetHash(), Offset: 9})
	assert.ErrorContains(t, err, "offset: outside of the body")
}
