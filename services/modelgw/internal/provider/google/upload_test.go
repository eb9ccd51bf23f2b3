package google_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/google"
)

// store is Google's API for files, in front of a model.
type store struct {
	address string
	asked   []string
	body    string
	// start and state are what it answers: the status of a start, and the state of a file that was sent.
	start int
	state string
	to    string
	// lost refuses requests that name a file.
	lost bool
	// wait is called before a file is taken; nil does not wait.
	wait func()
	mu   sync.Mutex
}

// ServeHTTP implements http.Handler.
func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.wait != nil && strings.HasPrefix(r.URL.Path, "/upload/") {
		s.wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := ""
	if r.Header.Get("X-Goog-Api-Key") != "" {
		key = " with the key"
	}
	s.asked = append(s.asked, r.Method+" "+r.URL.Path+key)
	raw, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasPrefix(r.URL.Path, "/upload/"):
		w.Header().Set("X-Goog-Upload-Url", s.to)
		w.WriteHeader(s.start)
	case strings.HasPrefix(r.URL.Path, "/put"):
		_, _ = io.WriteString(w, `{"file":{"name":"files/f1","uri":"https://files.example/f1","state":"`+s.state+`"}}`)
	case r.Method == http.MethodGet:
		_, _ = io.WriteString(w, `{"name":"files/f1","uri":"https://files.example/f1","state":"ACTIVE"}`)
	case s.lost && strings.Contains(string(raw), "fileData"):
		s.lost = false
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"error":{"code":403,"message":"You do not have permission to access the File f1 or it may not exist.","status":"PERMISSION_DENIED"}}`)
	default:
		s.body = string(raw)
		_, _ = io.WriteString(w, `{"candidates":[{"content":{"role":"model","parts":[{"text":"fine"}]},"finishReason":"STOP"}]}`)
	}
}

// open opens a model behind the store.
func (s *store) open(t *testing.T) provider.Provider {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.address = server.URL
	if s.to == "" {
		s.to = server.URL + "/put?upload_id=1"
	}
	kind, closeIdle := google.KindAsking(google.Config{APIKey: config.NewSecret("key-of-the-account"), BaseURL: server.URL})
	t.Cleanup(func() { _ = closeIdle() })
	p, err := kind.Open(provider.Spec{Model: "gemini-2.5-flash", Account: provider.DefaultAccount})
	require.NoError(t, err)
	return p
}

// withDocument is a request with a document.
func withDocument() *provider.Request {
	return &provider.Request{Messages: []*modelv1.ChatMessage{{
		Role: modelv1.Role_ROLE_USER, Content: chat.ListContent(chat.TextPart("q"), &contentv1.Content{Part: &contentv1.Content_Document{Document: &contentv1.Document{
			Media: &contentv1.Media{Source: &contentv1.Media_Uri{Uri: "data:application/pdf;base64,JVBERi0="}}, MimeType: "application/pdf",
		}}}),
	}}}
}

const (
	startFile = "POST /upload/v1beta/files with the key"
	sendFile  = "POST /put"
	generated = "POST /v1beta/models/gemini-2.5-flash:generateContent with the key"
)

// A file is uploaded once, and is named as soon as Google has read it. Its content goes without the key.
func TestFilesAreUploadedOnce(t *testing.T) {
	t.Parallel()
	s := &store{start: http.StatusOK, state: "PROCESSING"}
	p := s.open(t)
	for range 2 {
		_, err := p.Generate(t.Context(), withDocument())
		require.NoError(t, err)
		assert.Contains(t, s.body, `{"fileData":{"file_uri":"https://files.example/f1","mime_type":"application/pdf"}}`)
	}
	assert.Equal(t, []string{startFile, sendFile, "GET /v1beta/files/f1 with the key", generated, generated}, s.asked)
}

// A file that Google no longer has is uploaded again, once. One that was just uploaded is not.
func TestALostFileIsUploadedAgain(t *testing.T) {
	t.Parallel()
	s := &store{start: http.StatusOK, state: "ACTIVE"}
	p := s.open(t)
	_, err := p.Generate(t.Context(), withDocument())
	require.NoError(t, err)
	s.lost = true
	_, err = p.Generate(t.Context(), withDocument())
	require.NoError(t, err)
	assert.Equal(t, []string{startFile, sendFile, generated, generated, startFile, sendFile, generated}, s.asked)

	s = &store{start: http.StatusOK, state: "ACTIVE", lost: true}
	_, err = s.open(t).Generate(t.Context(), withDocument())
	require.ErrorContains(t, err, "access the File")
	assert.Equal(t, []string{startFile, sendFile, generated}, s.asked)
}

// carried keeps the body of a request in a batch.
type carried struct{ body string }

// Carry implements provider.Carrier.
func (c *carried) Carry(_ context.Context, post provider.Post) (*http.Response, error) {
	c.body = string(post.Body)
	return nil, errors.New("not yet")
}

// A request in a batch is found again by its body, which so has no address of a file.
func TestARequestInABatchHoldsItsFiles(t *testing.T) {
	t.Parallel()
	s := &store{start: http.StatusOK, state: "ACTIVE"}
	in := &carried{}
	r := withDocument()
	r.Carrier = in
	_, err := s.open(t).Generate(t.Context(), r)
	require.ErrorContains(t, err, "not yet")
	assert.Contains(t, in.body, `{"inlineData":{"mime_type":"application/pdf","data":"JVBERi0="}}`)
	assert.Empty(t, s.asked)
}

// A server that has no API for files gets them within requests.
func TestAServerWithoutFiles(t *testing.T) {
	t.Parallel()
	s := &store{start: http.StatusNotFound}
	p := s.open(t)
	for range 2 {
		_, err := p.Generate(t.Context(), withDocument())
		require.NoError(t, err)
		assert.Contains(t, s.body, `{"inlineData":{"mime_type":"application/pdf","data":"JVBERi0="}}`)
	}
	assert.Equal(t, []string{startFile, generated, generated}, s.asked)
}

// A failure to upload is that of the attempt. Content goes only to where the connection is safe, or the account's is.
func TestUploadsThatFail(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		store *store
		want  provider.Error
	}{
		"refused":    {&store{start: http.StatusUnauthorized}, provider.Error{Status: 401, Auth: true}},
		"busy":       {&store{start: http.StatusServiceUnavailable}, provider.Error{Status: 503, Class: provider.Transient}},
		"elsewhere":  {&store{start: http.StatusOK, to: "http://127.0.0.1:1/put"}, provider.Error{Status: 200, Invalid: true}},
		"unreadable": {&store{start: http.StatusOK, state: "FAILED"}, provider.Error{Status: 200, Invalid: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.store.open(t).Generate(t.Context(), withDocument())
			failure, ok := provider.As(err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, tt.want, provider.Error{Status: failure.Status, Class: failure.Class, Auth: failure.Auth, Invalid: failure.Invalid})
		})
	}
}

// Requests that need the same file at once share its upload.
func TestAFileThatSeveralRequestsNeedIsUploadedOnce(t *testing.T) {
	t.Parallel()
	const requests = 8
	s := &store{start: http.StatusOK, state: "ACTIVE"}
	var begun sync.WaitGroup
	begun.Add(requests)
	s.wait = begun.Wait
	p := s.open(t)
	var calls sync.WaitGroup
	for range requests {
		calls.Go(func() {
			begun.Done()
			_, err := p.Generate(t.Context(), withDocument())
			assert.NoError(t, err)
		})
	}
	calls.Wait()
	uploads := 0
	for _, asked := range s.asked {
		if asked == startFile {
			uploads++
		}
	}
	assert.Equal(t, 1, uploads)
	assert.Len(t, s.asked, requests+2)
}
