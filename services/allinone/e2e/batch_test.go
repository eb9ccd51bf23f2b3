package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// batchVendor is a server of OpenAI's files and batches, which answers yes to everything.
type batchVendor struct {
	*httptest.Server

	mu      sync.Mutex
	hold    bool
	files   map[string][]byte
	batches []object
	// asked counts how often each request was sent, by its id.
	asked map[string]int
}

func newBatchVendor(t *testing.T) *batchVendor {
	t.Helper()
	v := &batchVendor{hold: true, files: map[string][]byte{}, asked: map[string]int{}}
	v.Server = httptest.NewServer(v)
	t.Cleanup(v.Close)
	return v
}

// ServeHTTP implements http.Handler.
func (v *batchVendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	answer := func(document any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(document)
	}
	switch id := strings.TrimPrefix(path, "batches/"); {
	case r.Method == http.MethodPost && path == "files":
		file, header, err := r.FormFile("file")
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		v.files[header.Filename], _ = io.ReadAll(file)
		answer(object{"id": header.Filename})
	case r.Method == http.MethodPost && path == "batches":
		var batch object
		_ = json.NewDecoder(r.Body).Decode(&batch)
		batch["id"], batch["created_at"] = fmt.Sprint("batch-", len(v.batches)), time.Now().Unix()
		v.batches = append(v.batches, batch)
		for line := range bytes.Lines(v.files[batch["input_file_id"].(string)]) {
			v.asked[lineID(line)]++
		}
		answer(v.shown(batch))
	case path == "batches":
		all := []object{}
		for _, batch := range v.batches {
			all = append(all, v.shown(batch))
		}
		answer(object{"data": all})
	case strings.HasPrefix(path, "batches/"):
		for _, batch := range v.batches {
			if batch["id"] == id {
				answer(v.shown(batch))
			}
		}
	case strings.HasPrefix(path, "files/"):
		name := strings.TrimSuffix(strings.TrimPrefix(path, "files/"), "/content")
		for line := range bytes.Lines(v.files[name]) {
			answer(object{"custom_id": lineID(line), "response": object{"status_code": http.StatusOK, "body": object{
				"id": "c", "object": "chat.completion", "model": "gpt-4o", "usage": object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
				"choices": []object{{"index": 0, "finish_reason": "stop", "message": object{"role": "assistant", "content": "yes"}}},
			}}})
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func lineID(line []byte) string {
	var read struct {
		ID string `json:"custom_id"`
	}
	_ = json.Unmarshal(line, &read)
	return read.ID
}

// shown is a batch as the API shows it: its answers are in a file of the name of its requests.
func (v *batchVendor) shown(batch object) object {
	status := "completed"
	if v.hold {
		status = "in_progress"
	}
	return object{"id": batch["id"], "status": status, "metadata": batch["metadata"], "created_at": batch["created_at"], "output_file_id": batch["input_file_id"]}
}

// release ends the batches.
func (v *batchVendor) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hold = false
}

// sent are how often each request was sent.
func (v *batchVendor) sent() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := map[string]int{}
	for id, times := range v.asked {
		all[id] = times
	}
	return all
}

// batchedEval asks questions in one batch.
func batchedEval(n int32) *agentv1.EvalSpec {
	return &agentv1.EvalSpec{
		Task: "batched", Dataset: questions(int(n)), Steps: []*agentv1.AgentRef{{Name: "generate"}}, Scorers: []*agentv1.ScorerRef{{Name: "includes"}},
		Models: []*agentv1.ModelRef{{Model: "openai/gpt-4o"}},
		Config: &modelv1.GenerateConfig{Batch: &modelv1.BatchSetting{
			Enabled: true, Size: &n, SendDelay: durationpb.New(patience), Tick: durationpb.New(100 * time.Millisecond),
		}},
	}
}

// The server is killed around the upload and the sending of a batch and around its answers, and while it is in flight.
// The runs of the evaluation wait for the batch meanwhile, and no request is sent twice.
func TestKillAroundABatch(t *testing.T) {
	t.Parallel()
	const n = 5
	inEachForm(t, func(t *testing.T, f form) {
		for _, place := range []string{
			"modelgw/before-batch", "modelgw/after-upload", "modelgw/after-batch", "modelgw/after-batch-results",
			"modelgw/after-claim=7", "agentorch/after-intent=4",
		} {
			t.Run(place, func(t *testing.T) {
				t.Parallel()
				vendor := newBatchVendor(t)
				once := filepath.Join(t.TempDir(), "once")
				h := newHome(t, &breakable, f, "EVALFLEET_FAILPOINT="+place, "EVALFLEET_FAILPOINT_ONCE="+once, "OPENAI_API_KEY=k", "OPENAI_BASE_URL="+vendor.URL+"/v1")
				c := h.serve()
				late := place == "modelgw/after-batch-results"
				if late {
					vendor.release()
				}
				name, err := c.ask(t, batchedEval(n))
				h.died()
				require.FileExists(t, once, "it was the failpoint that ended the server")
				c = h.serve()
				if err != nil {
					require.Equal(t, codes.Unavailable, rpcerr.Code(err), "%v", err)
					name, err = c.ask(t, batchedEval(n))
					require.NoError(t, err)
				}
				if !late {
					eventually(t, func() bool {
						r, err := c.runs.ListRuns(within(t), &agentv1.ListRunsRequest{Parent: project, Eval: name, WaitingFor: agentv1.WaitReason_WAIT_REASON_BATCH})
						return err == nil && len(r.GetRuns()) == n && len(vendor.sent()) == n
					}, "every run waits for the batch")
					h.kill()
					c = h.serve()
					vendor.release()
				}
				eval := c.await(t, name)
				assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState())
				assert.InDelta(t, 1, metric(t, eval, "includes", "accuracy"), 1e-9)
				sent := vendor.sent()
				assert.Len(t, sent, n)
				for id, times := range sent {
					assert.Equal(t, 1, times, id)
				}
			})
		}
	})
}
