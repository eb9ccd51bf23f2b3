package google

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/batchapi"
)

// batches is the batch API of a model: https://ai.google.dev/api/batch-api. Requests and answers are inline, which
// bounds a batch to 20 MB; files are not used.
type batches struct {
	client batchapi.Client
	// model is the address of the model, and root that of the API with its version.
	model, root string
}

func (m *model) batchesOf(root string) *provider.BatchSupport {
	return &provider.BatchSupport{
		API:         &batches{batchapi.Client{Exchange: m.exchange, Authorize: m.authorize}, m.base, root},
		MaxRequests: 50_000, MaxBytes: 20_000_000, PriceShare: 0.5,
	}
}

// Submit implements [provider.BatchAPI].
func (b *batches) Submit(ctx context.Context, i provider.BatchIntent, lines []provider.BatchLine) (string, error) {
	parts := [][]byte{fmt.Appendf(nil, `{"batch":{"displayName":%s,"inputConfig":{"requests":{"requests":[`, batchapi.Text(i.Key))}
	for n, line := range lines {
		if n > 0 {
			parts = append(parts, []byte(","))
		}
		parts = append(parts, []byte(`{"request":`), line.Body, fmt.Appendf(nil, `,"metadata":{"key":%s}}`, batchapi.Text(line.ID)))
	}
	var made operation
	if err := b.client.Post(ctx, b.model+":batchGenerateContent", nil, &made, append(parts, []byte("]}}}}"))...); err != nil {
		return "", err
	}
	return made.Name, nil
}

// operation is a batch as the API shows it, without its answers.
type operation struct {
	Name     string `json:"name"`
	Done     bool   `json:"done"`
	Metadata struct {
		Display string    `json:"displayName"`
		State   string    `json:"state"`
		Created time.Time `json:"createTime"`
		Stats   stats     `json:"batchStats"`
	} `json:"metadata"`
	Error *fault `json:"error"`
}

// stats count the requests of a batch.
type stats struct {
	Succeeded json.Number `json:"successfulRequestCount"`
	Failed    json.Number `json:"failedRequestCount"`
}

// fault is why a batch failed.
type fault struct {
	Message string `json:"message"`
}

// answersOf is where the answers of a batch are; within are the paths above.
var (
	answersOf = map[string]bool{".response.inlinedResponses.inlinedResponses[]": true, ".metadata.output.inlinedResponses.inlinedResponses[]": true}
	within    = map[string]bool{
		"": true, ".metadata": true,
		".response": true, ".response.inlinedResponses": true, ".response.inlinedResponses.inlinedResponses": true,
		".metadata.output": true, ".metadata.output.inlinedResponses": true, ".metadata.output.inlinedResponses.inlinedResponses": true,
	}
)

// inlined is the answer to one request.
type inlined struct {
	Metadata struct {
		Key string `json:"key"`
	} `json:"metadata"`
	Response json.RawMessage `json:"response"`
	Error    json.RawMessage `json:"error"`
}

// endings are the states in which a batch has ended, and why a request has no answer.
var endings = map[string]string{
	"BATCH_STATE_SUCCEEDED": "", "BATCH_STATE_FAILED": "the batch failed", "BATCH_STATE_CANCELLED": "the batch was cancelled", "BATCH_STATE_EXPIRED": "the batch has expired",
}

// Find implements [provider.BatchAPI].
func (b *batches) Find(ctx context.Context, i provider.BatchIntent) (string, error) {
	for token := ""; ; {
		var page struct {
			Operations []operation `json:"operations"`
			Next       string      `json:"nextPageToken"`
		}
		if err := b.client.Get(ctx, b.root+"/batches?pageSize=100&pageToken="+url.QueryEscape(token), &page); err != nil {
			return "", err
		}
		for _, found := range page.Operations {
			if found.Metadata.Display == i.Key {
				return found.Name, nil
			}
		}
		if token = page.Next; token == "" {
			return "", nil
		}
	}
}

// address is where a batch is.
func (b *batches) address(id string) string {
	return b.root + "/batches/" + url.PathEscape(strings.TrimPrefix(id, "batches/"))
}

// Status implements [provider.BatchAPI].
func (b *batches) Status(ctx context.Context, id string) (provider.BatchStatus, error) {
	var o operation
	members := map[string]any{".done": &o.Done, ".metadata.state": &o.Metadata.State, ".metadata.batchStats": &o.Metadata.Stats, ".error": &o.Error}
	err := b.client.Walk(ctx, b.address(id), within, func(path string, value json.RawMessage) error {
		if into := members[path]; into != nil {
			_ = json.Unmarshal(value, into) // What has another form says nothing.
		}
		return nil
	})
	if err != nil {
		return provider.BatchStatus{}, err
	}
	missing, ended := endings[o.Metadata.State]
	if o.Error != nil {
		missing = batchapi.Join(missing, o.Error.Message)
	}
	return provider.BatchStatus{
		ID: id, Ended: ended || o.Done, Missing: missing, Completed: count(o.Metadata.Stats.Succeeded), Failed: count(o.Metadata.Stats.Failed),
	}, nil
}

func count(n json.Number) int {
	counted, _ := n.Int64() // 0 if there is none
	return int(counted)
}

// Results implements [provider.BatchAPI].
func (b *batches) Results(ctx context.Context, s provider.BatchStatus, each func(provider.BatchResult) error) error {
	return b.client.Walk(ctx, b.address(s.ID), within, func(path string, value json.RawMessage) error {
		var answer inlined
		if !answersOf[path] || json.Unmarshal(value, &answer) != nil || answer.Metadata.Key == "" {
			return nil
		}
		result := provider.BatchResult{ID: answer.Metadata.Key, Status: http.StatusOK, Body: answer.Response}
		switch {
		case len(answer.Response) > 0:
		case len(answer.Error) > 0:
			result.Status, result.Body = http.StatusInternalServerError, fmt.Appendf(nil, `{"error":%s}`, answer.Error)
			var said struct {
				Code int `json:"code"`
			}
			if json.Unmarshal(answer.Error, &said) == nil {
				result.Status = statusOf(said.Code)
			}
		default:
			return nil
		}
		return each(b.client.Redact(result))
	})
}

// codes are the statuses of HTTP by the codes of gRPC, with which a batch reports failures.
var codes = map[int]int{
	3: http.StatusBadRequest, 4: http.StatusGatewayTimeout, 5: http.StatusNotFound, 7: http.StatusForbidden, 8: http.StatusTooManyRequests,
	9: http.StatusBadRequest, 14: http.StatusServiceUnavailable, 16: http.StatusUnauthorized,
}

// statusOf is the status of HTTP that a code means, which is one or of gRPC.
func statusOf(code int) int {
	if code >= http.StatusBadRequest && code < 600 {
		return code
	}
	if status, known := codes[code]; known {
		return status
	}
	return http.StatusInternalServerError
}

// Cancel implements [provider.BatchAPI].
func (b *batches) Cancel(ctx context.Context, id string) error {
	err := b.client.Post(ctx, b.address(id)+":cancel", nil, &struct{}{}, []byte("{}"))
	if batchapi.Gone(err) {
		return nil
	}
	return err
}
