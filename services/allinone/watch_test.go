package allinone_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/allinone"
)

// A watch of a project is server-sent events: first the current position, then each change; it continues after
// Last-Event-ID.
func TestAProjectIsWatchedOverREST(t *testing.T) {
	dir, lock := folder(t, t.TempDir())
	server, stop := start(t, configured(t, "127.0.0.1:0"), allinone.Deps{Dir: dir, Lock: lock})
	defer stop()
	api := "http://" + server.Address() + "/api/v1/projects/default"
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	send := func(method, url, body string, headers ...string) *http.Response {
		req, err := http.NewRequestWithContext(waittest.Context(t), method, url, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+server.Token().Reveal())
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			req.Header.Set(name, value)
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		if resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(resp.Body)
			require.Failf(t, "refused", "%s: %s", url, text)
		}
		return resp
	}
	// until reads lines of a watch up to one that has a text, and returns the last id before it.
	until := func(lines *bufio.Scanner, text string) (id string) {
		for lines.Scan() {
			if value, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = value
			}
			if strings.Contains(lines.Text(), text) {
				return id
			}
		}
		require.Failf(t, "the watch ended", "before %q: %v", text, lines.Err())
		return ""
	}
	watch := send(http.MethodGet, api+":watch?fromHead=true", "", "Accept: text/event-stream")
	defer watch.Body.Close()
	lines := bufio.NewScanner(watch.Body)
	begin := until(lines, ": nothing new")
	require.NotEmpty(t, begin)
	require.NoError(t, send(http.MethodPost, api+"/runs", `{"spec": {"prompt": "hi", "steps": [{"name": "generate"}], "model": {"model": "mockllm/model"}}}`).Body.Close())
	assert.NotEmpty(t, until(lines, `"RUN_STATE_SUCCEEDED"`))

	again := send(http.MethodGet, api+":watch", "", "Last-Event-ID: "+begin)
	defer again.Body.Close()
	until(bufio.NewScanner(again.Body), `"RUN_STATE_SUCCEEDED"`)
}
