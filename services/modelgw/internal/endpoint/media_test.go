package endpoint

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/webfetch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/prepare"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// seeing is a provider that fetches some media itself.
type seeing struct {
	silent

	fetches provider.Fetches
}

func (s seeing) Capabilities() provider.Capabilities {
	return provider.Capabilities{Fetches: s.fetches}
}

// asked keeps the media of the requests that reach the models.
type asked struct {
	fetches provider.Fetches
	media   []string
}

func (a *asked) Answer(_ context.Context, r *modelv1.GenerateRequest, _ time.Duration) (*modelv1.GenerateResponse, error) {
	for _, m := range r.GetMessages() {
		for _, part := range chat.Parts(m.GetContent()) {
			if media := chat.Media(part); media != nil {
				a.media = append(a.media, media.GetUri())
			}
		}
	}
	_, err := prepare.Prepare(prepare.Conversation{Messages: r.GetMessages(), Config: r.GetConfig(), Client: true}, provider.Capabilities{Fetches: a.fetches})
	return &modelv1.GenerateResponse{Output: chat.MessageOutput("m", chat.Assistant("Seen."), modelv1.StopReason_STOP_REASON_STOP)}, err
}

func (a *asked) Follow(context.Context, *modelv1.GenerateRequest, time.Duration, func(*modelv1.StreamGenerateResponse) error) error {
	return errors.New("not asked for")
}

func (a *asked) CountTokens(ctx context.Context, r *modelv1.CountTokensRequest) (*modelv1.CountTokensResponse, error) {
	_, err := a.Answer(ctx, &modelv1.GenerateRequest{Messages: r.GetMessages()}, 0)
	return &modelv1.CountTokensResponse{MessageTokens: 1}, err
}

// web is what can be fetched.
type web map[string]webfetch.Thing

func (w web) Get(_ context.Context, address string, maxBytes int64) (webfetch.Thing, error) {
	thing, ok := w[address]
	if !ok || int64(len(thing.Body)) > maxBytes {
		return webfetch.Thing{}, errors.New("its server answers 404")
	}
	return thing, nil
}

// see sends a request with media at an address, in each format that can say so, to a model.
func see(t *testing.T, fetches provider.Fetches, fetch Fetcher, path, body string) (media []string, answer *httptest.ResponseRecorder) {
	t.Helper()
	registry := &provider.Registry{}
	require.NoError(t, registry.Register(provider.Kind{Name: "see", Open: func(provider.Spec) (provider.Provider, error) { return seeing{fetches: fetches}, nil }}))
	models := &asked{fetches: fetches}
	cfg := Config{}
	cfg.SetDefaults()
	cfg.WriteTimeout, cfg.FetchMedia.MaxBytes = 0, 10
	answer = httptest.NewRecorder()
	New(cfg, Deps{Auth: anybody{}, Registry: registry, Models: models, Fetch: fetch, Logger: slog.New(slog.DiscardHandler)}).
		ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return models.media, answer
}

// withMedia are requests with an image and, where the format can say so, a document at an address.
var withMedia = map[string][2]string{
	"chat completions": {"/v1/chat/completions", `{"model":"see/m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x.example/a.png?key=k"}}]}]}`},
	"responses":        {"/v1/responses", `{"model":"see/m","input":[{"role":"user","content":[{"type":"input_image","image_url":"https://x.example/a.png?key=k"},{"type":"input_file","file_url":"https://x.example/a.pdf"}]}]}`},
	"messages":         {"/v1/messages", `{"model":"see/m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x.example/a.png?key=k"}},{"type":"document","source":{"type":"url","url":"https://x.example/a.pdf"}}]}]}`},
	"count of tokens":  {"/v1/messages/count_tokens", `{"model":"see/m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x.example/a.png?key=k"}},{"type":"document","source":{"type":"url","url":"https://x.example/a.pdf"}}]}]}`},
	"gemini":           {"/v1beta/models/see/m:generateContent", `{"contents":[{"parts":[{"fileData":{"mimeType":"image/png","fileUri":"https://x.example/a.png?key=k"}},{"fileData":{"mimeType":"application/pdf","fileUri":"https://x.example/a.pdf"}}]}]}`},
}

const picture, document = "https://x.example/a.png?key=k", "https://x.example/a.pdf"

func TestAddressesArePassedOnOrFetchedOrRefused(t *testing.T) {
	t.Parallel()
	found := web{picture: {Type: "image/png", Body: []byte("hi")}, document: {Type: "application/pdf", Body: []byte("hello")}}
	const fetchedPicture, fetchedDocument = "data:image/png;base64,aGk=", "data:application/pdf;base64,aGVsbG8="
	for name, r := range withMedia {
		two := !strings.Contains(name, "chat")
		cut := func(all ...string) []string {
			if two {
				return all
			}
			return all[:1]
		}
		got, answer := see(t, provider.Fetches{Images: true, Documents: true}, nil, r[0], r[1])
		assert.Equal(t, http.StatusOK, answer.Code, "%s: %s", name, answer.Body)
		assert.Equal(t, cut(picture, document), got, "%s: the provider fetches", name)

		got, answer = see(t, provider.Fetches{}, found, r[0], r[1])
		assert.Equal(t, http.StatusOK, answer.Code, "%s: %s", name, answer.Body)
		assert.Equal(t, cut(fetchedPicture, fetchedDocument), got, "%s: it is fetched", name)

		got, answer = see(t, provider.Fetches{Images: true}, found, r[0], r[1])
		assert.Equal(t, http.StatusOK, answer.Code, "%s: %s", name, answer.Body)
		assert.Equal(t, cut(picture, fetchedDocument), got, "%s: the provider fetches images alone", name)

		got, answer = see(t, provider.Fetches{}, nil, r[0], r[1])
		assert.Equal(t, http.StatusBadRequest, answer.Code, name)
		assert.Contains(t, answer.Body.String(), "https://x.example/a.png?xxxxx of message 0, part 0: is not fetched here", name)
		assert.Empty(t, got, name)
	}
}

func TestMediaThatCannotBeFetchedIsRefused(t *testing.T) {
	t.Parallel()
	r := withMedia["responses"]
	for want, found := range map[string]web{
		"https://x.example/a.png?xxxxx of message 0, part 0: cannot be fetched: its server answers 404": {},
		"a.png?xxxxx of message 0, part 0: is no image: it is text/html":                                {picture: {Type: "text/html", Body: []byte("<html>")}},
		"a.pdf of message 0, part 1: cannot be fetched":                                                 {picture: {Type: "image/png", Body: []byte("123456")}, document: {Type: "text/plain", Body: []byte("12345")}}, // 11 bytes in all
	} {
		got, answer := see(t, provider.Fetches{}, found, r[0], r[1])
		assert.Equal(t, http.StatusBadRequest, answer.Code)
		assert.Contains(t, answer.Body.String(), want)
		assert.Contains(t, answer.Body.String(), `"param":"input"`)
		assert.Empty(t, got)
	}
}
