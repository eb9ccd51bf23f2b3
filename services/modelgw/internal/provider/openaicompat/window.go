package openaicompat

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
)

// window is the context window of a model, as its server lists it. The server is asked before the first request; a
// failure is no failure of the request. Safe for concurrent use.
type window struct {
	mu    sync.Mutex
	tries int
	known bool
	// tokens is zero if it is not known.
	tokens atomic.Int64
}

const (
	// windowTimeout bounds a question, and windowTries how often a server that does not answer is asked.
	windowTimeout = 5 * time.Second
	windowTries   = 3
	// maxListing bounds the list, in bytes.
	maxListing = 1 << 20
)

// ask asks the server, unless it has answered before, or another call asks it now.
func (w *window) ask(ctx context.Context, client *chatapi.Client, model string) {
	if !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	if w.known || w.tries >= windowTries {
		return
	}
	w.tries++
	within, cancel := context.WithTimeout(ctx, windowTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(within, http.MethodGet, strings.TrimSuffix(client.BaseURL, "/v1")+"/v1/models", http.NoBody)
	if err != nil {
		return
	}
	client.Authorize(request.Header)
	answer, err := client.HTTP.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			w.tries-- // The call ended, which says nothing of the server.
		}
		return
	}
	defer answer.Body.Close()
	w.known = true
	var list struct {
		Data []listed `json:"data"`
	}
	if answer.StatusCode == http.StatusOK && json.NewDecoder(io.LimitReader(answer.Body, maxListing)).Decode(&list) == nil {
		w.tokens.Store(windowOf(list.Data, model))
	}
}

// listed is a model in a server's list. An adapter has its model as parent, whose window counts.
type listed struct {
	ID     string `json:"id"`
	Parent string `json:"parent"`
	Window int64  `json:"max_model_len"`
}

// windowOf is the window of a model of a list, of the only one if the list has no other; 0 if it is not there.
func windowOf(list []listed, model string) int64 {
	byID := map[string]listed{}
	for _, l := range list {
		byID[l.ID] = l
	}
	own, ok := byID[model]
	switch {
	case ok && own.Window > 0:
		return own.Window
	case ok:
		return byID[own.Parent].Window
	case len(list) == 1:
		return list[0].Window
	default:
		return 0
	}
}

// ContextTokens implements provider.Windowed.
func (m *model) ContextTokens() (int64, bool) {
	tokens := m.window.tokens.Load()
	return tokens, tokens > 0
}
