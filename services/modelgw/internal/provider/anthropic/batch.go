package anthropic

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	format "github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/batchapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

// batchPath is where batches are, below the base URL: https://platform.claude.com/docs/en/api/creating-message-batches.
const batchPath = path + "/batches"

// batches is the batch API of an account.
type batches struct {
	client batchapi.Client
	base   string
}

// batchesOf returns the batch API of a model's account.
func (m *model) batchesOf(x *exchange.Exchange, endpoint string) *provider.BatchSupport {
	authorize := func(h http.Header) {
		for name, values := range m.headers {
			h[name] = values
		}
		if len(m.betas) > 0 && h.Get(betaHeader) == "" {
			h.Set(betaHeader, strings.Join(m.betas, ","))
		}
	}
	return &provider.BatchSupport{
		API:         &batches{batchapi.Client{Exchange: x, Authorize: authorize}, endpoint + batchPath},
		MaxRequests: 100_000, MaxBytes: 256 << 20, PriceShare: 0.5, Anonymous: true, Dropped: []string{"fallback_models"}, Headers: []string{http.CanonicalHeaderKey(betaHeader)},
	}
}

// Submit implements [provider.BatchAPI].
func (b *batches) Submit(ctx context.Context, i provider.BatchIntent, lines []provider.BatchLine) (string, error) {
	content := batchapi.Lines(lines, ",", func(id []byte) (before, after string) { return fmt.Sprintf(`{"custom_id":%s,"params":`, id), "}" })
	var made batch
	if err := b.client.Post(ctx, b.base, i.Header, &made, content.Within(`{"requests":[`, "]}")); err != nil {
		return "", err
	}
	return made.ID, nil
}

// batch is a batch as the API shows it.
type batch struct {
	ID      string    `json:"id"`
	Status  string    `json:"processing_status"`
	Created time.Time `json:"created_at"`
	Counts  struct {
		Processing int `json:"processing"`
		Succeeded  int `json:"succeeded"`
		Errored    int `json:"errored"`
		Canceled   int `json:"canceled"`
		Expired    int `json:"expired"`
	} `json:"request_counts"`
}

func (b *batch) failed() int { return b.Counts.Errored + b.Counts.Canceled + b.Counts.Expired }

// clockSkew is by how much the server's clock may differ from ours.
const clockSkew = 5 * time.Minute

// Find implements [provider.BatchAPI]. The API takes no name for a batch, so that any other of the same size and time
// may be it; the ids of its results tell.
func (b *batches) Find(ctx context.Context, i provider.BatchIntent) (string, error) {
	since := i.Time.Add(-clockSkew)
	for after := ""; ; {
		var page struct {
			Data    []batch `json:"data"`
			HasMore bool    `json:"has_more"`
			LastID  string  `json:"last_id"`
		}
		if err := b.client.Get(ctx, b.base+"?limit=100"+after, &page); err != nil {
			return "", err
		}
		old := false
		for _, found := range page.Data {
			old = old || found.Created.Before(since)
			if !found.Created.Before(since) && found.Counts.Processing+found.Counts.Succeeded+found.failed() == i.Requests && !slices.Contains(i.NotThese, found.ID) {
				return found.ID, nil
			}
		}
		if old || !page.HasMore || page.LastID == "" {
			return "", nil
		}
		after = "&after_id=" + url.QueryEscape(page.LastID)
	}
}

// Status implements [provider.BatchAPI].
func (b *batches) Status(ctx context.Context, id string) (provider.BatchStatus, error) {
	var found batch
	if err := b.client.Get(ctx, b.base+"/"+url.PathEscape(id), &found); err != nil {
		return provider.BatchStatus{}, err
	}
	return provider.BatchStatus{ID: id, Ended: found.Status == "ended", Completed: found.Counts.Succeeded, Failed: found.failed()}, nil
}

// endings are the results without an answer, and why they have none.
var endings = map[string]string{"canceled": "the batch was cancelled", "expired": "the batch has expired"}

// Results implements [provider.BatchAPI].
func (b *batches) Results(ctx context.Context, s provider.BatchStatus, each func(provider.BatchResult) error) error {
	return b.client.ReadResults(ctx, b.base+"/"+url.PathEscape(s.ID)+"/results", resultOf, each)
}

// resultOf reads a line of results; false if it is none.
func resultOf(line []byte) (provider.BatchResult, bool) {
	var read struct {
		ID     string `json:"custom_id"`
		Result struct {
			Type    string          `json:"type"`
			Message json.RawMessage `json:"message"`
			Error   json.RawMessage `json:"error"`
		} `json:"result"`
	}
	if json.Unmarshal(line, &read) != nil || read.ID == "" {
		return provider.BatchResult{}, false
	}
	result := provider.BatchResult{ID: read.ID}
	switch read.Result.Type {
	case "succeeded":
		result.Status, result.Body = http.StatusOK, read.Result.Message
	case "errored":
		result.Status, result.Body = statusOf(read.Result.Error), read.Result.Error
	default:
		result.Body = []byte(endings[read.Result.Type])
	}
	return result, true
}

// statusOf is the status with which the API refuses a plain request for the same reason.
func statusOf(document []byte) int {
	return cmp.Or(format.Codec{}.DecodeError(document).Status, http.StatusInternalServerError)
}

// Cancel implements [provider.BatchAPI].
func (b *batches) Cancel(ctx context.Context, id string) error {
	err := b.client.Post(ctx, b.base+"/"+url.PathEscape(id)+"/cancel", nil, &struct{}{}, batchapi.Content{})
	if batchapi.Gone(err) {
		return nil
	}
	return err
}
