package providertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// OpenAIBatches starts a server of OpenAI's files and batches, and returns its base URL.
func OpenAIBatches(t testing.TB) (*BatchVendor, string) {
	t.Helper()
	return fileBatches(t, fileStyle{upload: "/files", jobs: "/batches", purpose: "batch", show: (*BatchVendor).openAI})
}

// MistralBatches is OpenAIBatches for Mistral.
func MistralBatches(t testing.TB) (*BatchVendor, string) {
	t.Helper()
	return fileBatches(t, fileStyle{upload: "/files", jobs: "/batch/jobs", purpose: "batch", show: (*BatchVendor).mistral})
}

// TogetherBatches is OpenAIBatches for Together AI.
func TogetherBatches(t testing.TB) (*BatchVendor, string) {
	t.Helper()
	return fileBatches(t, fileStyle{upload: "/files/upload", jobs: "/batches", purpose: "batch-api", show: (*BatchVendor).together, together: true})
}

// fileStyle is in what servers of files and batches differ.
type fileStyle struct {
	upload, jobs, purpose string
	show                  func(*BatchVendor, *VendorBatch) object
	together              bool
}

func fileBatches(t testing.TB, style fileStyle) (*BatchVendor, string) {
	t.Helper()
	v := &BatchVendor{files: map[string][]byte{}, names: map[string]string{}}
	mux := http.NewServeMux()
	handle := func(pattern string, do func(w http.ResponseWriter, r *http.Request)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v.mu.Lock()
			defer v.mu.Unlock()
			do(w, r)
		})
	}
	handle("POST /v1"+style.upload, func(w http.ResponseWriter, r *http.Request) { v.uploadFile(w, r, style) })
	handle("POST /v1"+style.jobs, func(w http.ResponseWriter, r *http.Request) { v.createFileBatch(w, r, style) })
	handle("GET /v1/files", func(w http.ResponseWriter, _ *http.Request) {
		all := []object{}
		for _, id := range slices.Backward(slices.Sorted(maps.Keys(v.names))) {
			all = append(all, object{"id": id, "filename": v.names[id]})
		}
		sendJSON(w, object{"data": all})
	})
	handle("GET /v1"+style.jobs, func(w http.ResponseWriter, r *http.Request) {
		all := []object{}
		for _, b := range slices.Backward(v.batches) {
			all = append(all, style.show(v, b))
		}
		switch {
		case style.together:
			sendJSON(w, all)
		case r.FormValue("page") > "0":
			sendJSON(w, object{"object": "list", "data": []object{}})
		default:
			sendJSON(w, object{"object": "list", "data": all, "has_more": false})
		}
	})
	handle("GET /v1"+style.jobs+"/{id}", func(w http.ResponseWriter, r *http.Request) {
		b := v.find(r.PathValue("id"))
		switch {
		case v.FailStatus > 0:
			v.FailStatus--
			http.Error(w, `{"error":{"message":"busy"}}`, http.StatusServiceUnavailable)
		case b == nil:
			http.Error(w, `{"error":{"message":"no such batch"}}`, http.StatusNotFound)
		default:
			sendJSON(w, style.show(v, b))
		}
	})
	handle("POST /v1"+style.jobs+"/{id}/cancel", func(w http.ResponseWriter, r *http.Request) {
		b := v.find(r.PathValue("id"))
		if b.Cancelled {
			http.Error(w, `{"error":{"message":"it is cancelled already"}}`, http.StatusConflict)
			return
		}
		b.Cancelled = true
		sendJSON(w, style.show(v, b))
	})
	handle("GET /v1/files/{id}/content", func(w http.ResponseWriter, r *http.Request) {
		id, failed := strings.CutSuffix(r.PathValue("id"), "-errors")
		v.writeOpenAI(w, v.find(strings.TrimSuffix(id, "-output")), failed)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return v, server.URL + "/v1"
}

// uploadFile stores a file. OpenAI refuses a form with other members than it knows; Together requires the file's name.
func (v *BatchVendor) uploadFile(w http.ResponseWriter, r *http.Request, style fileStyle) {
	file, header, err := r.FormFile("file")
	form := url.Values{"purpose": {style.purpose}}
	if style.together && header != nil {
		form.Set("file_name", header.Filename)
	}
	if err != nil || !maps.EqualFunc(r.Form, form, slices.Equal) {
		http.Error(w, `{"error":{"message":"not the file of a batch"}}`, http.StatusBadRequest)
		return
	}
	id := v.id("file")
	v.files[id], _ = io.ReadAll(file)
	v.names[id] = header.Filename
	sendJSON(w, object{"id": id, "object": "file", "filename": header.Filename, "purpose": "batch"})
}

func (v *BatchVendor) createFileBatch(w http.ResponseWriter, r *http.Request, style fileStyle) {
	var asked struct {
		Input    string            `json:"input_file_id"`
		Inputs   []string          `json:"input_files"` // of Mistral, with the model and hours
		Model    string            `json:"model"`
		Hours    int               `json:"timeout_hours"`
		Endpoint string            `json:"endpoint"`
		Window   string            `json:"completion_window"`
		Metadata map[string]string `json:"metadata"`
	}
	err := json.NewDecoder(r.Body).Decode(&asked)
	mistral := len(asked.Inputs) == 1 && asked.Hours == 24
	if mistral {
		asked.Input, asked.Window = asked.Inputs[0], "24h"
	}
	b := &VendorBatch{Input: asked.Input, Endpoint: asked.Endpoint, Metadata: asked.Metadata, Header: r.Header, Bodies: map[string]json.RawMessage{}}
	for line := range strings.Lines(string(v.files[asked.Input])) {
		var one struct {
			ID     string          `json:"custom_id"`
			Method string          `json:"method"`
			URL    string          `json:"url"`
			Body   json.RawMessage `json:"body"`
		}
		if json.Unmarshal([]byte(line), &one) != nil || !mistral && (one.Method != http.MethodPost || one.URL != asked.Endpoint) {
			err = fmt.Errorf("bad line %q", line)
		}
		b.IDs, b.Bodies[one.ID] = append(b.IDs, one.ID), one.Body
	}
	switch {
	case err != nil || asked.Window != "24h" || len(b.IDs) == 0:
		http.Error(w, `{"error":{"message":"malformed batch"}}`, http.StatusBadRequest)
	case v.Refuse != "":
		w.WriteHeader(http.StatusBadRequest)
		sendJSON(w, object{"error": object{"message": v.Refuse, "type": "invalid_request_error"}})
	case !v.take(b):
		lost(w)
	case style.together:
		sendJSON(w, object{"job": style.show(v, b), "warning": nil})
	default:
		sendJSON(w, style.show(v, b))
	}
}

// mistral is a batch as Mistral shows it.
func (v *BatchVendor) mistral(b *VendorBatch) object {
	o := v.openAI(b)
	counts := o["request_counts"].(object)
	words := map[string]string{"in_progress": "RUNNING", "completed": "SUCCESS", "expired": "TIMEOUT_EXCEEDED", "cancelled": "CANCELLED"}
	return object{
		"id": b.ID, "object": "batch", "input_files": []string{b.Input}, "endpoint": b.Endpoint, "metadata": b.Metadata, "created_at": b.Created.Unix(),
		"status": words[o["status"].(string)], "output_file": o["output_file_id"], "error_file": o["error_file_id"], "errors": []object{},
		"total_requests": len(b.IDs), "succeeded_requests": counts["completed"], "failed_requests": counts["failed"],
	}
}

// together is a batch as Together AI shows it.
func (v *BatchVendor) together(b *VendorBatch) object {
	o := v.openAI(b)
	return object{
		"id": b.ID, "input_file_id": b.Input, "endpoint": b.Endpoint, "created_at": b.Created.UTC().Format(time.RFC3339Nano),
		"status": strings.ToUpper(o["status"].(string)), "output_file_id": o["output_file_id"], "error_file_id": o["error_file_id"], "request_counts": o["request_counts"],
	}
}

// GoogleBatches starts a server of Google's batches, and returns its base URL.
func GoogleBatches(t testing.TB) (*BatchVendor, string) {
	t.Helper()
	v := &BatchVendor{files: map[string][]byte{}}
	mux := http.NewServeMux()
	handle := func(pattern string, do func(w http.ResponseWriter, r *http.Request)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v.mu.Lock()
			defer v.mu.Unlock()
			do(w, r)
		})
	}
	v.googleFiles(handle)
	fail := func(w http.ResponseWriter, status int, message string) {
		w.WriteHeader(status)
		sendJSON(w, object{"error": object{"code": status, "message": message, "status": "INVALID_ARGUMENT"}})
	}
	handle("POST /v1beta/models/{method}", func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Batch struct {
				Display string `json:"displayName"`
				Input   struct {
					File     string `json:"fileName"`
					Requests struct {
						Requests []struct {
							Request  json.RawMessage   `json:"request"`
							Metadata map[string]string `json:"metadata"`
						} `json:"requests"`
					} `json:"requests"`
				} `json:"inputConfig"`
			} `json:"batch"`
		}
		err := json.NewDecoder(r.Body).Decode(&asked)
		b := &VendorBatch{Metadata: map[string]string{"display": asked.Batch.Display}, Input: asked.Batch.Input.File, Header: r.Header, Bodies: map[string]json.RawMessage{}}
		for line := range strings.Lines(string(v.files[b.Input])) {
			var one struct {
				Key     string          `json:"key"`
				Request json.RawMessage `json:"request"`
			}
			err = errors.Join(err, json.Unmarshal([]byte(line), &one))
			b.IDs, b.Bodies[one.Key] = append(b.IDs, one.Key), one.Request
		}
		for _, one := range asked.Batch.Input.Requests.Requests {
			b.IDs, b.Bodies[one.Metadata["key"]] = append(b.IDs, one.Metadata["key"]), one.Request
		}
		switch {
		case err != nil || len(b.IDs) == 0 || !strings.HasSuffix(r.PathValue("method"), ":batchGenerateContent"):
			fail(w, http.StatusBadRequest, "malformed")
		case v.Refuse != "":
			fail(w, http.StatusBadRequest, v.Refuse)
		case !v.take(b):
			lost(w)
		default:
			sendJSON(w, v.google(b))
		}
	})
	handle("GET /v1beta/batches", func(w http.ResponseWriter, _ *http.Request) {
		all := []object{}
		for _, b := range slices.Backward(v.batches) {
			all = append(all, v.google(b))
		}
		sendJSON(w, object{"operations": all})
	})
	handle("GET /v1beta/batches/{id}", func(w http.ResponseWriter, r *http.Request) {
		if v.FailStatus > 0 {
			v.FailStatus--
			fail(w, http.StatusServiceUnavailable, "busy")
			return
		}
		sendJSON(w, v.google(v.find(r.PathValue("id"))))
	})
	handle("POST /v1beta/batches/{method}", func(w http.ResponseWriter, r *http.Request) {
		id, _, _ := strings.Cut(r.PathValue("method"), ":cancel")
		v.find(id).Cancelled = true
		sendJSON(w, object{})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return v, server.URL
}

// googleFiles serves the files of Google's batches: https://ai.google.dev/api/files.
func (v *BatchVendor) googleFiles(handle func(pattern string, do func(w http.ResponseWriter, r *http.Request))) {
	handle("POST /upload/v1beta/files", func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		if h.Get("X-Goog-Upload-Protocol") != "resumable" || h.Get("X-Goog-Upload-Command") != "start" || h.Get("X-Goog-Upload-Header-Content-Type") != "application/jsonl" || h.Get("X-Goog-Api-Key") == "" {
			http.Error(w, `{"error":{"code":400,"message":"no start of an upload"}}`, http.StatusBadRequest)
			return
		}
		w.Header().Set("X-Goog-Upload-Url", "http://"+r.Host+"/sent?bytes="+h.Get("X-Goog-Upload-Header-Content-Length"))
	})
	handle("POST /sent", func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		if r.Header.Get("X-Goog-Upload-Command") != "upload, finalize" || r.Header.Get("X-Goog-Api-Key") != "" || r.FormValue("bytes") != strconv.Itoa(len(content)) {
			http.Error(w, `{"error":{"code":400,"message":"not the file"}}`, http.StatusBadRequest)
			return
		}
		name := "files/" + v.id("in")
		v.files[name] = content
		sendJSON(w, object{"file": object{"name": name, "mimeType": "application/jsonl", "state": "ACTIVE"}})
	})
	handle("GET /download/v1beta/files/{method}", func(w http.ResponseWriter, r *http.Request) {
		id, _ := strings.CutSuffix(strings.TrimPrefix(r.PathValue("method"), "out_"), ":download")
		b := v.find(id)
		if b == nil || r.FormValue("alt") != "media" || r.Header.Get("X-Goog-Api-Key") == "" {
			http.Error(w, `{"error":{"code":404,"message":"no such file"}}`, http.StatusNotFound)
			return
		}
		if v.Instead != "" {
			_, _ = io.WriteString(w, v.Instead)
			return
		}
		for _, line := range v.Garbage {
			_, _ = fmt.Fprintln(w, line)
		}
		v.googleAnswers(b, func(id string, _ bool, answer object) {
			answer["key"] = id
			sendJSON(w, answer)
		})
	})
}

// googleAnswers calls each for the answers of a batch.
func (v *BatchVendor) googleAnswers(b *VendorBatch, each func(id string, failed bool, answer object)) {
	v.results(b, func(id string, status int, answer string) {
		switch {
		case status == 0:
		case status == http.StatusOK:
			each(id, false, object{"response": json.RawMessage(answer)})
		default:
			var refusal struct {
				Error json.RawMessage `json:"error"`
			}
			_ = json.Unmarshal([]byte(answer), &refusal)
			each(id, true, object{"error": refusal.Error})
		}
	})
}

// google is a batch as the API shows it.
func (v *BatchVendor) google(b *VendorBatch) object {
	states := map[string]string{"": "RUNNING", "completed": "SUCCEEDED", "expired": "EXPIRED", "cancelled": "CANCELLED"}
	end, completed, failed, answers := v.ended(b), 0, 0, []object{}
	v.googleAnswers(b, func(id string, fails bool, answer object) {
		if fails {
			failed++
		} else {
			completed++
		}
		answer["metadata"] = object{"key": id}
		answers = append(answers, answer)
	})
	shown := object{"name": "batches/" + b.ID, "metadata": object{
		"displayName": b.Metadata["display"], "state": "BATCH_STATE_" + states[end], "createTime": b.Created.UTC().Format(time.RFC3339Nano),
	}}
	if end != "" {
		shown["done"] = true
		shown["metadata"].(object)["batchStats"] = object{"successfulRequestCount": fmt.Sprint(completed), "failedRequestCount": fmt.Sprint(failed)}
		shown["response"] = object{"inlinedResponses": object{"inlinedResponses": answers}}
		if b.Input != "" {
			shown["response"] = object{"responsesFile": "files/out_" + b.ID}
			shown["metadata"].(object)["output"] = shown["response"]
		}
	}
	return shown
}

// openAI is a batch as the API shows it.
func (v *BatchVendor) openAI(b *VendorBatch) object {
	shown := object{
		"id": b.ID, "object": "batch", "endpoint": b.Endpoint, "input_file_id": b.Input, "completion_window": "24h", "created_at": b.Created.Unix(),
		"metadata": b.Metadata, "status": "in_progress", "output_file_id": nil, "error_file_id": nil, "errors": nil,
	}
	completed, failed := 0, 0
	if end := v.ended(b); end != "" {
		shown["status"] = end
		v.results(b, func(_ string, status int, _ string) {
			if status == http.StatusOK {
				completed++
				shown["output_file_id"] = b.ID + "-output"
			} else {
				failed++
				shown["error_file_id"] = b.ID + "-errors"
			}
		})
	}
	shown["request_counts"] = object{"total": len(b.IDs), "completed": completed, "failed": failed}
	return shown
}

// writeOpenAI writes the answers of a batch, or its failures.
func (v *BatchVendor) writeOpenAI(w http.ResponseWriter, b *VendorBatch, failures bool) {
	if v.Instead != "" {
		_, _ = io.WriteString(w, v.Instead)
		return
	}
	for _, line := range v.Garbage {
		_, _ = fmt.Fprintln(w, line)
	}
	v.results(b, func(id string, status int, answer string) {
		switch {
		case failures == (status == http.StatusOK):
		case status == 0:
			sendJSON(w, object{"id": "x", "custom_id": id, "response": nil, "error": object{
				"code": "batch_" + v.ended(b), "message": "This request could not be executed before the batch " + v.ended(b) + ".",
			}})
		default:
			sendJSON(w, object{"id": "x", "custom_id": id, "error": nil, "response": object{"status_code": status, "request_id": "r", "body": json.RawMessage(answer)}})
		}
	})
}

// AnthropicBatches starts a server of Anthropic's batches, and returns its base URL.
func AnthropicBatches(t testing.TB) (*BatchVendor, string) {
	t.Helper()
	v := &BatchVendor{}
	mux := http.NewServeMux()
	handle := func(pattern string, do func(w http.ResponseWriter, r *http.Request)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v.mu.Lock()
			defer v.mu.Unlock()
			if r.Header.Get("X-Api-Key") == "" || r.Header.Get("Anthropic-Version") == "" {
				anthropicError(w, http.StatusUnauthorized, "authentication_error", "no key")
				return
			}
			do(w, r)
		})
	}
	handle("POST /v1/messages/batches", func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Requests []struct {
				ID     string          `json:"custom_id"`
				Params json.RawMessage `json:"params"`
			} `json:"requests"`
		}
		err := json.NewDecoder(r.Body).Decode(&asked)
		b := &VendorBatch{Header: r.Header, Bodies: map[string]json.RawMessage{}}
		for _, one := range asked.Requests {
			b.IDs, b.Bodies[one.ID] = append(b.IDs, one.ID), one.Params
		}
		switch {
		case err != nil || len(b.IDs) == 0:
			anthropicError(w, http.StatusBadRequest, "invalid_request_error", "malformed")
		case v.Refuse != "":
			anthropicError(w, http.StatusBadRequest, "invalid_request_error", v.Refuse)
		case !v.take(b):
			lost(w)
		default:
			sendJSON(w, v.anthropic(b))
		}
	})
	handle("GET /v1/messages/batches", func(w http.ResponseWriter, _ *http.Request) {
		var all []object
		for _, b := range slices.Backward(v.batches) {
			all = append(all, v.anthropic(b))
		}
		sendJSON(w, object{"data": all, "has_more": false})
	})
	handle("GET /v1/messages/batches/{id}", func(w http.ResponseWriter, r *http.Request) {
		if v.FailStatus > 0 {
			v.FailStatus--
			anthropicError(w, 529, "overloaded_error", "Overloaded")
			return
		}
		sendJSON(w, v.anthropic(v.find(r.PathValue("id"))))
	})
	handle("POST /v1/messages/batches/{id}/cancel", func(w http.ResponseWriter, r *http.Request) {
		b := v.find(r.PathValue("id"))
		b.Cancelled = true
		sendJSON(w, v.anthropic(b))
	})
	handle("GET /v1/messages/batches/{id}/results", func(w http.ResponseWriter, r *http.Request) {
		b := v.find(r.PathValue("id"))
		if v.Instead != "" {
			_, _ = io.WriteString(w, v.Instead)
			return
		}
		for _, line := range v.Garbage {
			_, _ = fmt.Fprintln(w, line)
		}
		v.results(b, func(id string, status int, answer string) {
			result := object{"type": "succeeded", "message": json.RawMessage(answer)}
			switch {
			case status == 0:
				result = object{"type": strings.Replace(v.ended(b), "cancelled", "canceled", 1)}
			case status != http.StatusOK:
				result = object{"type": "errored", "error": json.RawMessage(answer)}
			}
			sendJSON(w, object{"custom_id": id, "result": result})
		})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return v, server.URL
}

func anthropicError(w http.ResponseWriter, status int, kind, message string) {
	w.WriteHeader(status)
	sendJSON(w, object{"type": "error", "error": object{"type": kind, "message": message}})
}

// anthropic is a batch as the API shows it.
func (v *BatchVendor) anthropic(b *VendorBatch) object {
	counts := map[string]int{"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
	shown := object{
		"id": b.ID, "type": "message_batch", "processing_status": "in_progress", "created_at": b.Created.UTC().Format(time.RFC3339Nano), "request_counts": counts,
	}
	end := v.ended(b)
	if end == "" {
		counts["processing"] = len(b.IDs)
		return shown
	}
	shown["processing_status"] = "ended"
	v.results(b, func(_ string, status int, _ string) {
		switch {
		case status == http.StatusOK:
			counts["succeeded"]++
		case status != 0:
			counts["errored"]++
		case end == "expired":
			counts["expired"]++
		default:
			counts["canceled"]++
		}
	})
	return shown
}
