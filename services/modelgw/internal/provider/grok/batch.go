package grok

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

const (
	// batchPage is how many entries a list returns at once, and batchMessage bounds a message of the batch API.
	batchPage    = 100
	batchMessage = 256 << 20
	// addBytes bounds the requests that are added to a batch at once: servers of gRPC take 4 MiB.
	addBytes = 3 << 20
)

// readJSON reads messages that we or a later server have written.
var readJSON = protojson.UnmarshalOptions{DiscardUnknown: true}

// plainJSON is a message as JSON that is always the same, for the hash of a request.
func plainJSON(m proto.Message) []byte {
	var plain bytes.Buffer
	if json.Compact(&plain, document(m)) != nil {
		return nil
	}
	return plain.Bytes()
}

// carried is complete by the carrier of the attempt, whose own errors are no statuses.
func (a *attempt) carried(ctx context.Context) (*xai.GetChatCompletionResponse, error) {
	answer, err := a.request.Carrier.Carry(ctx, provider.Post{URL: xai.Chat_GetCompletion_FullMethodName, Header: http.Header{}, Body: plainJSON(a.sent)})
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	read, err := transport.ReadWhole(answer, a.request.AnswerBound())
	defer read.Release()
	if err != nil {
		return nil, transport.Broken(ctx, Name, err)
	}
	if answer.StatusCode != http.StatusOK {
		var said rpcstatus.Status
		if err := readJSON.Unmarshal(read.Bytes, &said); err != nil {
			return nil, invalid(err)
		}
		return nil, status.ErrorProto(&said)
	}
	response := &xai.GetChatCompletionResponse{}
	if err := readJSON.Unmarshal(read.Bytes, response); err != nil {
		return nil, invalid(err)
	}
	return response, nil
}

// batches is xAI's batch API. A batch is made first, and its requests are added afterwards, so that one that a crash
// has left behind may lack some.
type batches struct {
	client xai.BatchMgmtClient
	model  *model
}

// batchShare is the highest share of the plain price at which a model is sold in batches: xAI gives 20 to 50 % off, by
// model (LiteLLM 1.110.2 after https://api.x.ai/v1/language-models). What a call cost is in its answer.
const batchShare = 0.8

func (m *model) batchesOf(connection grpc.ClientConnInterface) *provider.BatchSupport {
	return &provider.BatchSupport{ // https://docs.x.ai/docs/guides/batch-api
		API: &batches{xai.NewBatchMgmtClient(connection), m}, MaxRequests: 1_000_000, MaxBytes: 200 << 20, PriceShare: batchShare,
	}
}

// failure is the failure of a call of the batch API.
func (b *batches) failure(ctx context.Context, err error) error {
	if _, failure := b.model.meaning(ctx, err, nil, false); failure != nil {
		return failure
	}
	return &provider.Error{Provider: Name, Status: http.StatusBadRequest, Message: b.model.redact(status.Convert(err).Message())}
}

// named returns the batch of a name; nil if there is none.
func (b *batches) named(ctx context.Context, i provider.BatchIntent) (*xai.Batch, error) {
	for token := (*string)(nil); ; {
		page, err := b.client.ListBatches(ctx, &xai.ListBatchesRequest{Limit: batchPage, PaginationToken: token})
		if err != nil {
			return nil, b.failure(ctx, err)
		}
		for _, found := range page.GetBatches() {
			if found.GetName() == i.Key {
				return found, nil
			}
		}
		if token = page.PaginationToken; page.GetPaginationToken() == "" {
			return nil, nil
		}
	}
}

// Find implements [provider.BatchAPI]. A batch that lacks requests is none yet: Submit completes it, unless it is to be
// cancelled.
func (b *batches) Find(ctx context.Context, i provider.BatchIntent) (string, error) {
	found, err := b.named(ctx, i)
	if err != nil || !i.Cancelled && found.GetState().GetNumRequests() < int64(i.Requests) {
		return "", err
	}
	return found.GetBatchId(), nil
}

// Submit implements [provider.BatchAPI]. A batch of which xAI refuses a part is cancelled, since no call waits for the
// rest.
func (b *batches) Submit(ctx context.Context, i provider.BatchIntent, lines []provider.BatchLine) (string, error) {
	batch, err := b.named(ctx, i)
	if err != nil {
		return "", err
	}
	has := map[string]bool{}
	if batch != nil {
		if has, err = b.requests(ctx, batch.GetBatchId()); err != nil {
			return "", err
		}
	} else if batch, err = b.client.CreateBatch(ctx, &xai.CreateBatchRequest{Name: i.Key}); err != nil {
		return "", b.failure(ctx, err)
	}
	lacks := slices.DeleteFunc(slices.Clone(lines), func(line provider.BatchLine) bool { return has[line.ID] })
	if err := b.add(ctx, batch.GetBatchId(), lacks); err != nil {
		if failure, ok := provider.As(err); ok && failure.Class == provider.Final {
			_ = b.Cancel(ctx, batch.GetBatchId()) // The refusal is what counts.
		}
		return "", err
	}
	return batch.GetBatchId(), nil
}

// add adds requests to a batch.
func (b *batches) add(ctx context.Context, id string, lines []provider.BatchLine) error {
	added := &xai.AddBatchRequestsRequest{BatchId: id}
	size := 0
	send := func() error {
		if len(added.GetBatchRequests()) == 0 {
			return nil
		}
		if _, err := b.client.AddBatchRequests(ctx, added); err != nil {
			return b.failure(ctx, err)
		}
		added.BatchRequests, size = nil, 0
		return nil
	}
	for _, line := range lines {
		body, err := line.Body(ctx)
		if err != nil {
			return err
		}
		request := &xai.GetCompletionsRequest{}
		if err := readJSON.Unmarshal(body, request); err != nil {
			return fmt.Errorf("%s: a stored request cannot be read: %w", Name, err)
		}
		if size > 0 && size+len(body) > addBytes {
			if err := send(); err != nil {
				return err
			}
		}
		size += len(body)
		added.BatchRequests = append(added.BatchRequests, &xai.BatchRequest{
			BatchRequestId: &line.ID, Request: &xai.BatchRequest_CompletionRequest{CompletionRequest: request},
		})
	}
	return send()
}

// requests returns the ids of the requests that a batch has.
func (b *batches) requests(ctx context.Context, id string) (map[string]bool, error) {
	has := map[string]bool{}
	for token := (*string)(nil); ; {
		page, err := b.client.ListBatchRequestMetadata(ctx, &xai.ListBatchRequestMetadataRequest{BatchId: id, Limit: batchPage, PaginationToken: token})
		if err != nil {
			return nil, b.failure(ctx, err)
		}
		for _, request := range page.GetBatchRequestMetadata() {
			has[request.GetBatchRequestId()] = true
		}
		if token = page.PaginationToken; page.GetPaginationToken() == "" {
			return has, nil
		}
	}
}

// Status implements [provider.BatchAPI].
func (b *batches) Status(ctx context.Context, id string) (provider.BatchStatus, error) {
	found, err := b.client.GetBatch(ctx, &xai.GetBatchRequest{BatchId: id})
	if err != nil {
		return provider.BatchStatus{}, b.failure(ctx, err)
	}
	state := found.GetState()
	s := provider.BatchStatus{
		ID: id, Ended: state.GetNumPending() == 0 && state.GetNumRequests() > 0,
		Completed: int(state.GetNumSuccess()), Failed: int(state.GetNumError() + state.GetNumCancelled()),
	}
	switch expires := found.GetExpireTime(); {
	case found.GetCancelTime() != nil:
		s.Ended, s.Missing = true, "the batch was cancelled"
	case expires != nil && expires.AsTime().Before(time.Now()):
		s.Ended, s.Missing = true, "the batch has expired"
	}
	return s, nil
}

// Results implements [provider.BatchAPI].
func (b *batches) Results(ctx context.Context, s provider.BatchStatus, each func(provider.BatchResult) error) error {
	for token := (*string)(nil); ; {
		page, err := b.client.ListBatchResults(ctx, &xai.ListBatchResultsRequest{BatchId: s.ID, Limit: batchPage, PaginationToken: token}, grpc.MaxCallRecvMsgSize(batchMessage))
		if err != nil {
			return b.failure(ctx, err)
		}
		for _, found := range page.GetResults() {
			result := provider.BatchResult{ID: found.GetBatchRequestId(), Status: http.StatusOK}
			switch {
			case found.GetResponse().GetCompletionResponse() != nil:
				result.Body = plainJSON(found.GetResponse().GetCompletionResponse())
			case found.GetError() != nil:
				said := found.GetError()
				said.Message, said.Details = b.model.redact(said.GetMessage()), nil
				if result.Status = statuses[codes.Code(said.GetCode())]; result.Status == 0 {
					result.Status = http.StatusInternalServerError
				}
				result.Body = plainJSON(said)
			default:
				continue
			}
			if err := each(result); err != nil {
				return err
			}
		}
		if token = page.PaginationToken; page.GetPaginationToken() == "" {
			return nil
		}
	}
}

// Cancel implements [provider.BatchAPI].
func (b *batches) Cancel(ctx context.Context, id string) error {
	_, err := b.client.CancelBatch(ctx, &xai.CancelBatchRequest{BatchId: id})
	if err != nil && status.Code(err) != codes.FailedPrecondition {
		return b.failure(ctx, err)
	}
	return nil
}
