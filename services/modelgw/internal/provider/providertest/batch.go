package providertest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// BatchVendor is what servers of batch APIs in tests have in common. Change its fields before it is used, or with Do.
type BatchVendor struct {
	mu sync.Mutex
	// Reply answers the body of a request; status 0 is a request that gets no answer, since the batch ends early. Nil
	// answers each with an id.
	Reply func(id string, body []byte) (status int, answer string)
	// Hold keeps batches in progress.
	Hold bool
	// End is how batches end: empty if they are completed, `expired` or `cancelled`.
	End string
	// Garbage are lines among the results that are no results.
	Garbage []string
	// Instead is answered in place of the results.
	Instead string
	// FailStatus is how many of the next questions for the state of a batch fail.
	FailStatus int
	// LoseCreate is how many of the next batches are taken without an answer.
	LoseCreate int
	// Refuse refuses batches, with this message.
	Refuse string

	files   map[string][]byte
	names   map[string]string // of files
	batches []*VendorBatch
	last    int
}

// rawJSON is the body of a request.
type rawJSON = json.RawMessage

// VendorBatch is a batch at such a vendor.
type VendorBatch struct {
	ID, Input, Endpoint string
	Metadata            map[string]string
	Header              http.Header
	IDs                 []string
	Bodies              map[string]rawJSON
	Cancelled           bool
	Created             time.Time
}

// Do changes the vendor while it is used.
func (v *BatchVendor) Do(change func(*BatchVendor)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(v)
}

// Batches returns the batches that the vendor has taken.
func (v *BatchVendor) Batches() []*VendorBatch {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.batches)
}

func (v *BatchVendor) id(kind string) string {
	v.last++
	return fmt.Sprintf("%s_%d", kind, v.last)
}

// take adds a batch; it reports false if its answer gets lost. v.mu is held.
func (v *BatchVendor) take(b *VendorBatch) bool {
	b.ID, b.Created = v.id("batch"), time.Now()
	v.batches = append(v.batches, b)
	if v.LoseCreate > 0 {
		v.LoseCreate--
		return false
	}
	return true
}

func (v *BatchVendor) find(id string) *VendorBatch {
	for _, b := range v.batches {
		if b.ID == id {
			return b
		}
	}
	return nil
}

// ended returns how a batch has ended; empty while it is in progress. v.mu is held.
func (v *BatchVendor) ended(b *VendorBatch) string {
	switch {
	case b.Cancelled:
		return "cancelled"
	case v.Hold:
		return ""
	case v.End != "":
		return v.End
	}
	return "completed"
}

// results returns the answers of a batch, the last request first. v.mu is held.
func (v *BatchVendor) results(b *VendorBatch, each func(id string, status int, answer string)) {
	for _, id := range slices.Backward(b.IDs) {
		status, answer := http.StatusOK, `{"id":"c"}`
		if v.Reply != nil {
			status, answer = v.Reply(id, b.Bodies[id])
		}
		each(id, status, answer)
	}
}

// lost breaks a connection.
func lost(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func sendJSON(w http.ResponseWriter, document any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document)
}

// BatchHarness is a provider with a batch API, for [RunBatch].
type BatchHarness struct {
	// New starts the vendor and opens a model of it; address is that of its account.
	New func(t *testing.T) (vendor *BatchVendor, address string, p provider.Provider)
	// Path is where plain requests go, below the address, and Header are the headers of a batch.
	Path   string
	Header http.Header
	// Answer is an answer of the API to a plain request, as JSON, and Refusal one with another status than 200.
	Answer, Refusal string
	// Lines is an API whose results are lines of a file.
	Lines bool
	// InSteps is an API whose batches are made first and get their requests afterwards, so that one whose answer was
	// lost is completed by Submit instead of being found.
	InSteps bool
}

// RunBatch holds the batch API of a provider to the contract of [provider.BatchAPI].
func RunBatch(t *testing.T, h BatchHarness) {
	for name, test := range map[string]func(*testing.T, BatchHarness){
		"every request gets its own answer":        batchAnswers,
		"requests fail one by one":                 batchPartial,
		"a batch that has expired":                 batchExpired,
		"a batch is cancelled":                     batchCancelled,
		"lines that are no results":                batchGarbage,
		"results that are something else":          batchNoResults,
		"a large answer":                           batchLarge,
		"a batch whose answer was lost is found":   batchFound,
		"a batch sent again is found":              batchFoundAgain,
		"a batch that was never made is not found": batchNotFound,
		"a refused batch":                          batchRefused,
		"a question that fails":                    batchStatusFails,
		"the bounds":                               batchBounds,
	} {
		t.Run(name, func(t *testing.T) { test(t, h) })
	}
}

type batchTrial struct {
	*testing.T
	vendor *BatchVendor
	batch  *provider.BatchSupport
	intent provider.BatchIntent
	lines  []provider.BatchLine
	bodies map[string]string // of lines by their ids
}

// BatchLine is a line of a batch with a body in memory.
func BatchLine(id, body string) provider.BatchLine {
	return provider.BatchLine{ID: id, Size: int64(len(body)), Body: func(context.Context) ([]byte, error) { return []byte(body), nil }}
}

// trial opens a batch with three requests.
func (h BatchHarness) trial(t *testing.T) *batchTrial {
	vendor, address, p := h.New(t)
	support := p.Capabilities().Batch
	require.NotNil(t, support)
	assert.True(t, p.Capabilities().Features.GetBatch())
	trial := &batchTrial{T: t, vendor: vendor, batch: support, bodies: map[string]string{}}
	trial.intent = provider.BatchIntent{Key: "bkey", URL: address + h.Path, Header: h.Header, Requests: 3, Time: time.Now()}
	for n := range 3 {
		id, body := fmt.Sprintf("bkey-%d", n), fmt.Sprintf("{\"n\":%d,\n\"model\":\"m\"}", n)
		trial.lines, trial.bodies[id] = append(trial.lines, BatchLine(id, body)), body
	}
	return trial
}

func (b *batchTrial) submit() string {
	b.Helper()
	id, err := b.batch.API.Submit(b.Context(), b.intent, b.lines)
	require.NoError(b, err)
	require.NotEmpty(b, id)
	return id
}

func (b *batchTrial) status(id string) provider.BatchStatus {
	b.Helper()
	s, err := b.batch.API.Status(b.Context(), id)
	require.NoError(b, err)
	return s
}

func (b *batchTrial) results(s provider.BatchStatus) map[string]provider.BatchResult {
	b.Helper()
	all := map[string]provider.BatchResult{}
	require.NoError(b, b.batch.API.Results(b.Context(), s, func(r provider.BatchResult) error {
		r.Body = slices.Clone(r.Body)
		all[r.ID] = r
		return nil
	}))
	return all
}

func batchAnswers(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	b.vendor.Do(func(v *BatchVendor) {
		v.Hold = true
		v.Reply = func(id string, _ []byte) (int, string) { return http.StatusOK, `{"id":"answer to ` + id + `"}` }
	})
	id := b.submit()
	assert.False(t, b.status(id).Ended)
	taken := b.vendor.Batches()
	require.Len(t, taken, 1)
	for _, line := range b.lines {
		assert.JSONEq(t, b.bodies[line.ID], string(taken[0].Bodies[line.ID]))
	}
	for name := range h.Header {
		assert.Equal(t, h.Header.Get(name), taken[0].Header.Get(name), name)
	}
	b.vendor.Do(func(v *BatchVendor) { v.Hold = false })
	s := b.status(id)
	assert.True(t, s.Ended)
	assert.Equal(t, 3, s.Completed)
	results := b.results(s)
	require.Len(t, results, 3)
	for _, line := range b.lines {
		assert.Equal(t, http.StatusOK, results[line.ID].Status)
		assert.JSONEq(t, `{"id":"answer to `+line.ID+`"}`, string(results[line.ID].Body))
	}
}

func batchPartial(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	b.vendor.Do(func(v *BatchVendor) {
		v.Reply = func(id string, _ []byte) (int, string) {
			if id == "bkey-1" {
				return http.StatusBadRequest, h.Refusal
			}
			return http.StatusOK, h.Answer
		}
	})
	s := b.status(b.submit())
	assert.Equal(t, []int{2, 1}, []int{s.Completed, s.Failed})
	results := b.results(s)
	assert.Equal(t, http.StatusBadRequest, results["bkey-1"].Status)
	assert.JSONEq(t, h.Refusal, string(results["bkey-1"].Body))
	assert.Equal(t, http.StatusOK, results["bkey-2"].Status)
}

func batchExpired(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	b.vendor.Do(func(v *BatchVendor) {
		v.End = "expired"
		v.Reply = func(id string, _ []byte) (int, string) {
			if id == "bkey-1" {
				return http.StatusOK, h.Answer
			}
			return 0, ""
		}
	})
	s := b.status(b.submit())
	assert.True(t, s.Ended)
	results := b.results(s)
	assert.Equal(t, http.StatusOK, results["bkey-1"].Status)
	for _, id := range []string{"bkey-0", "bkey-2"} {
		said, given := results[id]
		assert.Zero(t, said.Status)
		why := string(said.Body)
		if !given {
			why = s.Missing
		}
		assert.Contains(t, why, "expired")
	}
}

func batchCancelled(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	b.vendor.Do(func(v *BatchVendor) {
		v.Hold = true
		v.Reply = func(string, []byte) (int, string) { return 0, "" }
	})
	id := b.submit()
	require.NoError(t, b.batch.API.Cancel(t.Context(), id))
	require.NoError(t, b.batch.API.Cancel(t.Context(), id), "it may be repeated")
	s := b.status(id)
	assert.True(t, s.Ended)
	results := b.results(s)
	for _, line := range b.lines {
		said, given := results[line.ID]
		why := string(said.Body)
		if !given {
			why = s.Missing
		}
		assert.Contains(t, why, "cancel")
	}
}

func batchGarbage(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	b.vendor.Do(func(v *BatchVendor) {
		v.Garbage = []string{"no JSON", `{"custom_id":7}`, `[]`, `{}`, `{"custom_id":"bkey-0","response":`, ""}
	})
	assert.Len(t, b.results(b.status(b.submit())), 3)
}

// A page of a proxy, or an error, in place of the results is a failure that may pass: the vendor has the answers.
func batchNoResults(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	s := b.status(b.submit())
	if !h.Lines {
		return
	}
	for _, page := range []string{"<html>\n<body>Bad gateway</body>", `{"error":{"message":"try again"}}`} {
		b.vendor.Do(func(v *BatchVendor) { v.Instead = page })
		err := b.batch.API.Results(t.Context(), s, func(provider.BatchResult) error { return nil })
		assert.Equal(t, provider.Transient, provider.ClassOfError(err), "%v", err)
	}
	b.vendor.Do(func(v *BatchVendor) { v.Instead = "" })
	assert.Len(t, b.results(s), 3)
}

func batchLarge(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	large := `{"id":"` + strings.Repeat("x", 3<<20) + `"}`
	b.vendor.Do(func(v *BatchVendor) { v.Reply = func(string, []byte) (int, string) { return http.StatusOK, large } })
	results := b.results(b.status(b.submit()))
	require.Len(t, results, 3)
	assert.Len(t, results["bkey-0"].Body, len(large))
}

func batchFound(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	other := b.intent
	other.Key, other.Requests = "bother", 1
	_, err := b.batch.API.Submit(t.Context(), other, []provider.BatchLine{BatchLine("bother-0", `{}`)})
	require.NoError(t, err)
	b.vendor.Do(func(v *BatchVendor) { v.LoseCreate = 1 })
	_, err = b.batch.API.Submit(t.Context(), b.intent, b.lines)
	failure, ok := provider.As(err)
	require.True(t, ok, "%v", err)
	assert.NotEqual(t, provider.Final, failure.Class, "the vendor may have taken it")
	id, err := b.batch.API.Find(t.Context(), b.intent)
	require.NoError(t, err)
	if h.InSteps {
		assert.Empty(t, id)
		id = b.submit()
	}
	taken := b.vendor.Batches()
	require.Len(t, taken, 2)
	assert.True(t, strings.HasSuffix(id, taken[1].ID), id)
	if b.batch.Anonymous {
		b.intent.NotThese = []string{id}
		id, err = b.batch.API.Find(t.Context(), b.intent)
		require.NoError(t, err)
		assert.Empty(t, id)
	}
}

// The first attempt to send the batch may leave behind a part of it, such as a file.
func batchFoundAgain(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	b.vendor.Do(func(v *BatchVendor) { v.Refuse = "not now" })
	_, err := b.batch.API.Submit(t.Context(), b.intent, b.lines)
	require.Error(t, err)
	b.vendor.Do(func(v *BatchVendor) { v.Refuse = "" })
	made := b.submit()
	b.vendor.Do(func(v *BatchVendor) { v.Refuse = "not now" })
	_, err = b.batch.API.Submit(t.Context(), b.intent, b.lines)
	if !h.InSteps { // There the batch is there already.
		require.Error(t, err)
	}
	id, err := b.batch.API.Find(t.Context(), b.intent)
	require.NoError(t, err)
	assert.Equal(t, made, id)
}

func batchNotFound(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	id, err := b.batch.API.Find(t.Context(), b.intent)
	require.NoError(t, err)
	assert.Empty(t, id)
}

func batchRefused(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	b.vendor.Do(func(v *BatchVendor) { v.Refuse = "no batches for you" })
	_, err := b.batch.API.Submit(t.Context(), b.intent, b.lines)
	failure, ok := provider.As(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, provider.Final, failure.Class)
	assert.Equal(t, http.StatusBadRequest, failure.Status)
	assert.ErrorContains(t, err, "no batches for you")
}

func batchStatusFails(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	id := b.submit()
	b.vendor.Do(func(v *BatchVendor) { v.FailStatus = 1 })
	_, err := b.batch.API.Status(t.Context(), id)
	assert.Equal(t, provider.Transient, provider.ClassOfError(err), "%v", err)
	assert.True(t, b.status(id).Ended)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.batch.API.Status(gone, id)
	assert.ErrorIs(t, err, context.Canceled)
}

func batchBounds(t *testing.T, h BatchHarness) {
	b := h.trial(t)
	assert.Positive(t, b.batch.MaxRequests)
	assert.Positive(t, b.batch.MaxBytes)
	for _, name := range b.batch.Headers {
		assert.Equal(t, http.CanonicalHeaderKey(name), name)
	}
	for name := range maps.Keys(h.Header) {
		assert.Contains(t, b.batch.Headers, name)
	}
}
