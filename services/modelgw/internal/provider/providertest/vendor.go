package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/retry"
)

// vendor is a server that returns answers in order, in the format of a vendor. Requests for a number of tokens, if the
// format has a path for them, and for lists of models do not consume an answer.
type vendor struct {
	// failure is a body for a status, stream and whole write answers.
	failure string
	// code is a header that names a failure; nil is none.
	code          func(status int) (name, value string)
	stream, whole func(Answer, http.ResponseWriter)

	mu      sync.Mutex
	answers []Answer
}

// serve serves a vendor until the test ends and returns its address.
func serve(t testing.TB, v *vendor) string {
	t.Helper()
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	return server.URL
}

// streamPaths are the ends of the paths of formats that ask for a stream by the address.
var streamPaths = []string{geminiStream, converseStream, invokeStream}

func (v *vendor) next() Answer {
	v.mu.Lock()
	defer v.mu.Unlock()
	a := v.answers[0]
	v.answers = v.answers[1:]
	return a
}

// ServeHTTP implements http.Handler.
func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == countPath, strings.HasSuffix(r.URL.Path, rawPredictCount):
		_, _ = fmt.Fprint(w, defaultCount)
		return
	case r.Method != http.MethodPost:
		_, _ = fmt.Fprint(w, noModels)
		return
	}
	var asked struct {
		Stream bool `json:"stream"`
	}
	_ = json.NewDecoder(r.Body).Decode(&asked)
	a := v.next()
	if retry.Sleep(r.Context(), a.Delay) != nil {
		return
	}
	switch {
	case a.Status != 0:
		w.Header().Set("Retry-After", strconv.Itoa(int(a.RetryAfter.Seconds())))
		if v.code != nil {
			w.Header().Set(v.code(a.Status))
		}
		w.WriteHeader(a.Status)
		_, _ = fmt.Fprintf(w, v.failure, a.Status)
	case asked.Stream || slices.ContainsFunc(streamPaths, func(end string) bool { return strings.HasSuffix(r.URL.Path, end) }):
		w.Header().Set("Content-Type", "text/event-stream")
		v.stream(a, w)
	default:
		v.whole(a, w)
	}
}
