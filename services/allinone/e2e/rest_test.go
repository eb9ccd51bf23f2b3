package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rest calls the REST API as a person at a shell does: with curl, if it is installed.
type rest struct {
	address, token string
	curl           string // empty without
}

func (h *home) rest() rest {
	h.t.Helper()
	curl, err := exec.LookPath("curl")
	if err != nil {
		h.t.Log("there is no curl here; net/http stands in")
	}
	return rest{address: h.address(), token: h.token(), curl: curl}
}

// do sends a request with an object as its body (nil: none) and further headers, each `Name: value`, and returns the
// answer whole: of a stream, when it has ended.
func (r rest) do(t *testing.T, method, path string, body any, headers ...string) (status int, answer string) {
	t.Helper()
	if r.token != "" {
		headers = append(headers, "Authorization: Bearer "+r.token)
	}
	var content []byte
	if body != nil {
		content = []byte(text(t, body))
	}
	url := "http://" + r.address + path
	if r.curl != "" {
		return r.byCurl(t, method, url, content, headers)
	}
	req, err := http.NewRequestWithContext(within(t), method, url, bytes.NewReader(content))
	require.NoError(t, err)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func (r rest) byCurl(t *testing.T, method, url string, content []byte, headers []string) (status int, answer string) {
	t.Helper()
	args := []string{"--silent", "--show-error", "--no-buffer", "--globoff", "--max-time", fmt.Sprint(int(patience.Seconds())), "--request", method, "--write-out", "\n%{http_code}"}
	for _, header := range headers {
		args = append(args, "--header", header)
	}
	if content != nil {
		args = append(args, "--header", "Content-Type: application/json", "--data-binary", "@-")
	}
	c := exec.CommandContext(within(t), r.curl, append(args, url)...)
	c.Stdin = bytes.NewReader(content)
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	require.NoError(t, err, complaint.String())
	end := bytes.LastIndexByte(out, '\n')
	status, err = strconv.Atoi(string(out[end+1:]))
	require.NoError(t, err)
	return status, string(out[:end])
}

// ok sends a request that must be well and returns its answer.
func (r rest) ok(t *testing.T, method, path string, body any, headers ...string) object {
	t.Helper()
	status, answer := r.do(t, method, path, body, headers...)
	require.Equal(t, http.StatusOK, status, answer)
	return parsed(t, answer)
}

func parsed(t *testing.T, answer string) object {
	t.Helper()
	var o object
	require.NoError(t, json.Unmarshal([]byte(answer), &o), answer)
	return o
}

// at follows keys and indices into JSON.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			o, _ := v.(object)
			v = o[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

// serverSent is an event of a stream of server-sent events.
type serverSent struct{ id, data string }

// eventsOf reads a stream of server-sent events that has ended.
func eventsOf(stream string) []serverSent {
	var all []serverSent
	for block := range strings.SplitSeq(stream, "\n\n") {
		var e serverSent
		for line := range strings.SplitSeq(block, "\n") {
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				e.id = id
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				e.data += data
			}
		}
		if e.data != "" {
			all = append(all, e)
		}
	}
	return all
}

// evalOverREST is an evaluation as somebody with curl would write it.
func evalOverREST(entries ...object) object {
	return object{"spec": object{
		"task": "shell",
		"dataset": object{"inline": object{"samples": []object{
			{"id": "sky", "input": []object{{"role": "ROLE_USER", "content": object{"text": "What colour is the sky?"}}}, "target": object{"values": []string{"blue"}}},
			{"id": "grass", "input": []object{{"role": "ROLE_USER", "content": object{"text": "What colour is grass?"}}}, "target": object{"values": []string{"green"}}},
		}}},
		"steps":   []object{{"name": "generate"}},
		"models":  []object{{"model": "mockllm/model", "modelArgsJson": mustJSON(object{"outputs": entries})}},
		"scorers": []object{{"name": "match"}},
	}}
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // Texts and numbers can always be written.
	}
	return string(b)
}

// A whole evaluation with nothing but curl: make it, watch it, read its results, steer another one.
func TestEvalOverREST(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		h.serve()
		r := h.rest()
		evals := "/api/v1/" + project + "/evals"

		body := evalOverREST(object{"sample": "sky", "output": "It is blue"}, object{"sample": "grass", "output": "It is red"})
		eval := r.ok(t, "POST", evals, body, "Idempotency-Key: once")
		name, _ := eval["name"].(string)
		require.Contains(t, name, project+"/evals/")
		assert.Equal(t, name, r.ok(t, "POST", evals, body, "Idempotency-Key: once")["name"], "the same key is the same evaluation")

		status, stream := r.do(t, "GET", "/api/v1/"+name+":watch", nil, "Accept: text/event-stream")
		require.Equal(t, http.StatusOK, status, stream)
		events := eventsOf(stream)
		require.GreaterOrEqual(t, len(events), 6, "made, two samples admitted and finished, results: %s", stream)
		for i, e := range events {
			assert.EqualValues(t, strconv.Itoa(i+1), at(parsed(t, e.data), "event", "seq"), "dense, and each once")
			assert.NotEmpty(t, e.id)
		}
		last := events[len(events)-1]
		assert.Equal(t, "EVAL_STATE_SUCCEEDED", at(parsed(t, last.data), "event", "evalStateChanged", "state"))

		for _, place := range []int{0, 2, len(events) - 1} {
			_, rest := r.do(t, "GET", "/api/v1/"+name+":watch", nil, "Accept: text/event-stream", "Last-Event-ID: "+events[place].id)
			assert.Equal(t, events[place+1:], append([]serverSent{}, eventsOf(rest)...), "after event %d", place+1)
		}

		eval = r.ok(t, "GET", "/api/v1/"+name, nil)
		assert.Equal(t, "EVAL_STATE_SUCCEEDED", eval["state"])
		assert.Equal(t, "accuracy", at(eval, "results", "scores", 0, "metrics", 0, "key"))
		assert.InDelta(t, 0.5, at(eval, "results", "scores", 0, "metrics", 0, "value"), 0)

		samples := r.ok(t, "GET", "/api/v1/"+name+"/samples?pageSize=1", nil)
		assert.Equal(t, "sky", at(samples, "samples", 0, "id"))
		assert.Equal(t, "C", at(samples, "samples", 0, "scores", 0, "score", "value", "text"))
		token, _ := samples["nextPageToken"].(string)
		samples = r.ok(t, "GET", "/api/v1/"+name+"/samples?pageSize=1&pageToken="+token, nil)
		assert.Equal(t, "grass", at(samples, "samples", 0, "id"))
		assert.Equal(t, "I", at(samples, "samples", 0, "scores", 0, "score", "value", "text"))
		run, _ := at(samples, "samples", 0, "run").(string)
		_, stream = r.do(t, "GET", "/api/v1/"+run+":watch?content=true", nil, "Accept: text/event-stream")
		watched := eventsOf(stream)
		require.NotEmpty(t, watched)
		assert.NotNil(t, at(parsed(t, watched[len(watched)-1].data), "event", "runFinished"), "a run's stream ends with the run")
		_, rest := r.do(t, "GET", "/api/v1/"+run+":watch?content=true", nil, "Accept: text/event-stream", "Last-Event-ID: "+watched[3].id)
		assert.Equal(t, watched[4:], eventsOf(rest))
		transcript := r.ok(t, "GET", "/api/v1/"+run+"/events?content=true&pageSize=1000", nil)
		assert.Contains(t, text(t, transcript), "It is red", "what was said stands in the run's journal")

		// Another one never ends by itself.
		endless := r.ok(t, "POST", evals, evalOverREST(object{"min_turn": 1, "output": object{"text": "late", "delay_s": 600}}))
		second, _ := endless["name"].(string)
		cancelled := func() bool { return r.ok(t, "GET", "/api/v1/"+second, nil)["state"] == "EVAL_STATE_CANCELLED" }
		r.ok(t, "POST", "/api/v1/"+second+":cancel", object{"reason": "enough"})
		eventually(t, cancelled, "it is cancelled")
		assert.Contains(t, []any{"EVAL_STATE_PENDING", "EVAL_STATE_RUNNING"}, r.ok(t, "POST", "/api/v1/"+second+":resume", object{})["state"])
		r.ok(t, "POST", "/api/v1/"+second+":cancel", object{})
		eventually(t, cancelled, "it is cancelled again")

		list := r.ok(t, "GET", evals, nil)
		assert.Equal(t, []any{second, name}, []any{at(list, "evals", 0, "name"), at(list, "evals", 1, "name")}, "newest first")
		assert.Nil(t, at(list, "evals", 2))
		done := r.ok(t, "GET", evals+"?states=EVAL_STATE_SUCCEEDED", nil)
		assert.Equal(t, name, at(done, "evals", 0, "name"))
		assert.Nil(t, at(done, "evals", 1))
	})
}

// A PATCH changes the fields in its body: null clears, an empty body is refused, and If-Match is compared with the etag
// that was read.
func TestUpdatesOverREST(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		h.serve()
		r := h.rest()
		budget := "/api/v1/" + project + "/budgets/project"
		made := r.ok(t, "PATCH", budget, object{"maxTokens": "1000", "maxCost": 5})
		assert.Equal(t, []any{"1000", 5.0}, []any{made["maxTokens"], made["maxCost"]})
		lifted := r.ok(t, "PATCH", budget, object{"maxCost": nil}, fmt.Sprintf("If-Match: %q", made["etag"]))
		assert.Equal(t, []any{"1000", nil}, []any{lifted["maxTokens"], lifted["maxCost"]})
		status, answer := r.do(t, "PATCH", budget, object{})
		assert.Equal(t, http.StatusBadRequest, status)
		assert.Contains(t, answer, "nothing is to be changed")
		status, answer = r.do(t, "PATCH", budget, object{"maxTokens": nil}, fmt.Sprintf("If-Match: %q", made["etag"]))
		assert.Equal(t, http.StatusConflict, status, answer)
		assert.Equal(t, "ABORTED", at(parsed(t, answer), "error", "status"))
		assert.Contains(t, answer, "ETAG_MISMATCH")

		eval := r.ok(t, "POST", "/api/v1/"+project+"/evals", evalOverREST(object{"min_turn": 1, "output": object{"text": "late", "delay_s": 600}}))
		path := fmt.Sprintf("/api/v1/%s", eval["name"])
		assert.EqualValues(t, 1, at(r.ok(t, "PATCH", path, object{"spec": object{"maxSamples": 1, "tags": []string{"slow"}}}), "spec", "maxSamples"))
		patched := r.ok(t, "PATCH", path, object{"spec": object{"maxSamples": nil}})
		assert.Equal(t, []any{nil, "slow"}, []any{at(patched, "spec", "maxSamples"), at(patched, "spec", "tags", 0)})
		assert.Equal(t, "EVAL_STATE_RUNNING", r.ok(t, "GET", path+":wait?timeout=0.01s", nil)["state"], "the time is over")

		var run string
		eventually(t, func() bool {
			run, _ = at(r.ok(t, "GET", path+"/samples", nil), "samples", 0, "run").(string)
			return run != ""
		}, "a sample has its run")
		limited := r.ok(t, "POST", "/api/v1/"+run+":retuneLimits", object{"limits": object{"turns": 50, "tokens": "9000"}})
		assert.Equal(t, []any{50.0, "9000"}, []any{at(limited, "limits", "turns"), at(limited, "limits", "tokens")})
		free := r.ok(t, "POST", "/api/v1/"+run+":retuneLimits", object{"updateMask": "turns"})
		assert.Equal(t, []any{nil, "9000"}, []any{at(free, "limits", "turns"), at(free, "limits", "tokens")})
		r.ok(t, "POST", path+":cancel", object{})
		assert.Equal(t, "EVAL_STATE_CANCELLED", r.ok(t, "GET", path+":wait?timeout=60s", nil)["state"])
	})
}

// The pages that need no credential, and the description of the API.
func TestFrontDoor(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		h.serve()
		r := h.rest()
		info := r.ok(t, "GET", "/api/v1/server", nil)
		assert.NotEmpty(t, info["version"])
		openapi := r.ok(t, "GET", "/openapi.json", nil)
		assert.NotNil(t, at(openapi, "paths"))

		stranger := rest{address: r.address, curl: r.curl}
		status, answer := stranger.do(t, "GET", "/healthz", nil)
		assert.Equal(t, http.StatusOK, status, answer)
		for _, header := range []string{"Host: evil.example", "Origin: http://evil.example"} {
			status, answer = r.do(t, "GET", "/api/v1/server", nil, header)
			assert.Equal(t, http.StatusForbidden, status, "%s: %s", header, answer)
		}
	})
}
