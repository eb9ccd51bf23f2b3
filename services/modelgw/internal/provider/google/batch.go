package google

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/batchapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
)

// batches is the batch API of a model: https://ai.google.dev/api/batch-api. Small batches are inline, larger ones are a
// file of JSON lines (https://ai.google.dev/gemini-api/docs/batch-api#input-file), whose answers are a file too.
type batches struct {
	client batchapi.Client
	// uploads sends a file to the address that Google names for it, which has a credential in itself.
	uploads batchapi.Client
	// model is the address of the model, root that of the API with its version, and files and downloads are those of
	// files.
	model, root, files, downloads string
	// maxInline bounds the bodies of a batch without a file.
	maxInline int64
}

// batchesOf returns the batch API of a model, at an address without the version.
func (m *model) batchesOf(root, version string, plain *exchange.Exchange, maxInline int64) *provider.BatchSupport {
	return &provider.BatchSupport{
		API: &batches{
			client: batchapi.Client{Exchange: m.exchange, Authorize: m.authorize}, uploads: batchapi.Client{Exchange: plain, Authorize: func(http.Header) {}},
			maxInline: maxInline, model: m.base, root: root + "/" + version, files: root + "/upload/" + version + "/files", downloads: root + "/download/" + version + "/files/",
		},
		MaxRequests: 50_000, MaxBytes: maxBatchBytes, PriceShare: 0.5,
	}
}

// Bounds of a batch: https://ai.google.dev/gemini-api/docs/batch-api. The bodies of an inline one leave room for what
// is around them.
const (
	maxBatchBytes  = 2_000_000_000
	maxInlineBytes = 20_000_000 / 100 * 95
)

// Submit implements [provider.BatchAPI].
func (b *batches) Submit(ctx context.Context, i provider.BatchIntent, lines []provider.BatchLine) (string, error) {
	size := int64(0)
	for _, line := range lines {
		size += line.Size
	}
	head := fmt.Sprintf(`{"batch":{"displayName":%s,"inputConfig":`, jsonwrite.AppendText(nil, i.Key))
	content := batchapi.Lines(lines, ",", func(id []byte) (before, after string) {
		return `{"request":`, fmt.Sprintf(`,"metadata":{"key":%s}}`, id)
	})
	content = content.Within(head+`{"requests":{"requests":[`, "]}}}}")
	if size > b.maxInline {
		file, err := b.upload(ctx, i.Key, lines)
		if err != nil {
			return "", err
		}
		content = batchapi.Document(fmt.Appendf(nil, `%s{"fileName":%s}}}`, head, jsonwrite.AppendText(nil, file)))
	}
	var made operation
	if err := b.client.Post(ctx, b.model+":batchGenerateContent", nil, &made, content); err != nil {
		return "", err
	}
	return made.Name, nil
}

// upload uploads the requests of a batch as a file, and returns its name. Google keeps it for 48 hours.
func (b *batches) upload(ctx context.Context, key string, lines []provider.BatchLine) (name string, err error) {
	content := batchapi.Lines(lines, "", func(id []byte) (before, after string) { return fmt.Sprintf(`{"key":%s,"request":`, id), "}\n" })
	header := uploadHeader(http.Header{"Content-Type": {"application/json"}}, startHeaders)
	header.Set(contentTypeHeader, "application/jsonl")
	header.Set("X-Goog-Upload-Header-Content-Length", strconv.FormatInt(content.Size(), 10))
	begun, err := b.client.Do(ctx, http.MethodPost, b.files, header, batchapi.Document(fmt.Appendf(nil, `{"file":{"display_name":%s}}`, jsonwrite.AppendText(nil, key))))
	if err != nil {
		return "", err
	}
	_ = begun.Body.Close()
	to, err := uploadAddress(begun.Header, b.files)
	if err != nil {
		return "", b.client.Unreadable(err)
	}
	var made struct {
		File file `json:"file"`
	}
	if err := b.uploads.Post(ctx, to, uploadHeader(http.Header{}, sendHeaders), &made, content); err != nil {
		return "", err
	}
	if made.File.Name == "" || made.File.State == "FAILED" {
		return "", b.client.Unreadable(errors.New("the file of a batch cannot be used"))
	}
	return made.File.Name, nil
}

// operation is a batch as the API shows it, without its answers.
type operation struct {
	Name     string `json:"name"`
	Done     bool   `json:"done"`
	Metadata struct {
		State string `json:"state"`
		Stats stats  `json:"batchStats"`
	} `json:"metadata"`
	Error *fault `json:"error"`
}

// listed is a batch in a list, with no more than what identifies it as one of ours.
type listed struct {
	Name     string `json:"name"`
	Metadata struct {
		Display string `json:"displayName"`
	} `json:"metadata"`
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

// answersOf is where the answers of a batch are, and resultsOf where the name of their file is; within are the paths
// above.
var (
	answersOf = map[string]bool{".response.inlinedResponses.inlinedResponses[]": true, ".metadata.output.inlinedResponses.inlinedResponses[]": true}
	resultsOf = map[string]bool{".response.responsesFile": true, ".metadata.output.responsesFile": true}
	within    = map[string]bool{
		"": true, ".metadata": true,
		".response": true, ".response.inlinedResponses": true, ".response.inlinedResponses.inlinedResponses": true,
		".metadata.output": true, ".metadata.output.inlinedResponses": true, ".metadata.output.inlinedResponses.inlinedResponses": true,
	}
)

// answeredRequest is the answer to one request. Its key is within the metadata where it is inline.
type answeredRequest struct {
	Key      string `json:"key"`
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
			Operations []listed `json:"operations"`
			Next       string   `json:"nextPageToken"`
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
	var sources []string
	members := map[string]any{".done": &o.Done, ".metadata.state": &o.Metadata.State, ".metadata.batchStats": &o.Metadata.Stats, ".error": &o.Error}
	err := b.client.Walk(ctx, b.address(id), within, func(path string, value json.RawMessage) error {
		if into := members[path]; into != nil {
			_ = json.Unmarshal(value, into) // What has another form says nothing.
		}
		if file, ok := jsonscan.Text(value); ok && resultsOf[path] && !slices.Contains(sources, file) {
			sources = append(sources, file)
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
		Sources: sources,
	}, nil
}

func count(n json.Number) int {
	counted, _ := n.Int64() // 0 if there is none
	return int(counted)
}

// Results implements [provider.BatchAPI].
func (b *batches) Results(ctx context.Context, s provider.BatchStatus, each func(provider.BatchResult) error) error {
	for _, file := range s.Sources {
		address := b.downloads + url.PathEscape(strings.TrimPrefix(file, "files/")) + ":download?alt=media"
		if err := b.client.ReadResults(ctx, address, resultOf, each); err != nil {
			return err
		}
	}
	if len(s.Sources) > 0 {
		return nil
	}
	return b.client.Walk(ctx, b.address(s.ID), within, func(path string, value json.RawMessage) error {
		if !answersOf[path] {
			return nil
		}
		if result, ok := resultOf(value); ok {
			return each(b.client.Redact(result))
		}
		return nil
	})
}

// resultOf reads the answer to a request; false if the document is none.
func resultOf(document []byte) (provider.BatchResult, bool) {
	var answer answeredRequest
	if json.Unmarshal(document, &answer) != nil {
		return provider.BatchResult{}, false
	}
	result := provider.BatchResult{ID: cmp.Or(answer.Key, answer.Metadata.Key), Status: http.StatusOK, Body: answer.Response}
	switch {
	case result.ID == "":
		return result, false
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
		result.Status = 0
	}
	return result, true
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
	err := b.client.Post(ctx, b.address(id)+":cancel", nil, &struct{}{}, batchapi.Document([]byte("{}")))
	if batchapi.Gone(err) {
		return nil
	}
	return err
}
