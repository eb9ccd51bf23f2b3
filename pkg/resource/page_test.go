package resource_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

const invalidCursor = errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR

func TestAPageTokenBelongsToItsRequest(t *testing.T) {
	t.Parallel()
	first, err := resource.PageOf(&agentv1.ListRunsRequest{Parent: "projects/default", PageSize: 10})
	require.NoError(t, err)
	assert.Empty(t, first.After)
	assert.Equal(t, 10, first.Size)
	token := first.Token("after-r7")

	next, err := resource.PageOf(&agentv1.ListRunsRequest{Parent: "projects/default", PageSize: 50, PageToken: token})
	require.NoError(t, err)
	assert.Equal(t, "after-r7", next.After)

	for name, other := range map[string]*agentv1.ListRunsRequest{"project": {Parent: "projects/other"}, "filter": {Parent: "projects/default", Eval: "projects/default/evals/e"}} {
		other.PageToken = token
		_, err := resource.PageOf(other)
		assert.True(t, rpcerr.Is(err, invalidCursor), name)
	}
}

func TestAListIsCutIntoPages(t *testing.T) {
	t.Parallel()
	var got []int64
	request := &agentv1.ListRunsRequest{Parent: "projects/default", PageSize: 2}
	for pages := 1; ; pages++ {
		page, err := resource.PageOf(request)
		require.NoError(t, err)
		after, err := page.AfterNumber()
		require.NoError(t, err)
		var found []int64
		for n := after + 1; n <= 4 && len(found) <= page.Size; n++ {
			found = append(found, n)
		}
		found, request.PageToken = resource.Cut(page, found, func(n int64) string { return strconv.FormatInt(n, 10) })
		got = append(got, found...)
		if request.GetPageToken() == "" {
			assert.Equal(t, 2, pages, "a page that is the list's end has no token")
			break
		}
	}
	assert.Equal(t, []int64{1, 2, 3, 4}, got)
}

func TestPositionsThatAreNoneOfTheListAreRefused(t *testing.T) {
	t.Parallel()
	list := &agentv1.ListRunsRequest{Parent: "projects/default"}
	first, err := resource.PageOf(list)
	require.NoError(t, err)
	for _, strange := range []string{"x", "-1", "1 ", "99999999999999999999"} {
		page, err := resource.PageOf(&agentv1.ListRunsRequest{Parent: "projects/default", PageToken: first.Token(strange)})
		require.NoError(t, err)
		_, err = page.AfterNumber()
		assert.True(t, rpcerr.Is(err, invalidCursor), strange)
		assert.ErrorContains(t, err, "page_token cannot be read; begin again without it")
		_, err = resource.ReadCursor(first.Token(strange), list)
		assert.True(t, rpcerr.Is(err, invalidCursor), strange)
	}
}

func TestACursorBelongsToItsWatch(t *testing.T) {
	t.Parallel()
	watch := &agentv1.WatchEvalRequest{Name: "projects/default/evals/e"}
	after, err := resource.ReadCursor(resource.Cursors(watch)(7), watch)
	require.NoError(t, err)
	assert.EqualValues(t, 7, after)
	after, err = resource.ReadCursor("", watch)
	require.NoError(t, err)
	assert.Zero(t, after)
	_, err = resource.ReadCursor(resource.Cursors(watch)(7), &agentv1.WatchEvalRequest{Name: "projects/default/evals/other"})
	assert.True(t, rpcerr.Is(err, invalidCursor))
	assert.ErrorContains(t, err, "cursor belongs to another request")
}

func FuzzPageToken(f *testing.F) {
	f.Add("AAAA")
	f.Fuzz(func(_ *testing.T, token string) {
		page, _ := resource.PageOf(&agentv1.ListRunsRequest{PageToken: token})
		_, _ = page.AfterNumber()
	})
}

// The request is hashed once, however many cursors there are.
func TestCursorsReadTheirRequestOnce(t *testing.T) {
	t.Parallel()
	watch := &agentv1.WatchEvalRequest{Name: "projects/default/evals/e"}
	cursors, same := resource.Cursors(watch), proto.CloneOf(watch)
	watch.Name = "projects/default/evals/other"
	after, err := resource.ReadCursor(cursors(8), same)
	require.NoError(t, err)
	assert.EqualValues(t, 8, after)
}
