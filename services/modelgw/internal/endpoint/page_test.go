package endpoint

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestListsOfModelsComeInPages holds the queries of Anthropic's and Google's clients to the pages that their APIs give.
func TestListsOfModelsComeInPages(t *testing.T) {
	t.Parallel()
	var all []model
	for _, name := range []string{"a", "b", "v/c", "d"} {
		all = append(all, model{name: name})
	}
	for query, want := range map[string]string{
		"":                        "a b v/c d",
		"limit=4":                 "a b v/c d",
		"limit=1000":              "a b v/c d",
		"limit=3":                 "a b v/c …",
		"limit=2&after_id=b":      "v/c d",
		"limit=1&after_id=a":      "b …",
		"after_id=d":              "",
		"limit=2&before_id=d":     "b v/c …",
		"limit=2&before_id=v%2Fc": "a b",
		"before_id=a":             "",
	} {
		assert.Equal(t, want, shown(t, anthropicPage, query, all), "Anthropic's %q", query)
	}
	for query, want := range map[string]string{
		"":                           "a b v/c d",
		"pageSize=3":                 "a b v/c …",
		"pageSize=3&pageToken=v%2Fc": "d",
		"pageSize=5000":              "a b v/c d",
		"pageToken=d":                "",
		"pageSize=0&pageToken=v/c":   "d",
	} {
		assert.Equal(t, want, shown(t, geminiPage, query, all), "Gemini's %q", query)
	}
	for _, query := range []string{"limit=0", "limit=-1", "limit=x", "limit=", "limit=1001", "after_id=none", "before_id=none", "after_id=a&before_id=d"} {
		_, err := anthropicPage(values(t, query), all)
		assert.Error(t, err, query)
	}
	for _, query := range []string{"pageSize=-1", "pageSize=x", "pageToken=none"} {
		_, err := geminiPage(values(t, query), all)
		assert.Error(t, err, query)
	}
	assert.Contains(t, string(geminiModels(page{all[:3], true})), `"nextPageToken":"v/c"`)
	assert.Contains(t, string(anthropicModels(page{all[:3], true})), `"has_more":true,"first_id":"a","last_id":"v/c"`)
	assert.NotContains(t, string(openaiModels(page{models: all})), "has_more")
}

func values(t *testing.T, query string) url.Values {
	t.Helper()
	read, err := url.ParseQuery(query)
	require.NoError(t, err)
	return read
}

// shown are the names of a page, and whether there are more.
func shown(t *testing.T, paged func(url.Values, []model) (page, error), query string, all []model) string {
	t.Helper()
	got, err := paged(values(t, query), all)
	require.NoError(t, err, query)
	var names []string
	for _, m := range got.models {
		names = append(names, m.name)
	}
	if got.more {
		names = append(names, "…")
	}
	return strings.Join(names, " ")
}

func TestACompressedBodyIsRefused(t *testing.T) {
	t.Parallel()
	for coding, refused := range map[string]bool{"gzip": true, "br, gzip": true, "identity": false, "": false} {
		r := httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader("{}"))
		r.Header.Set("Content-Encoding", coding)
		b, err := readBody(r, 100)
		if !refused {
			require.NoError(t, err, coding)
			b.Release()
			continue
		}
		assert.ErrorContains(t, err, "the body is encoded as "+coding+"; send it as it is")
		var said *refusal
		require.ErrorAs(t, err, &said)
		assert.Equal(t, http.StatusUnsupportedMediaType, said.Status)
	}
}
