package batchapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/failpoint"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Files is a batch API in the manner of OpenAI's: requests are a file of lines that is uploaded first, and results are
// files of lines. It implements [provider.BatchAPI].
type Files struct {
	Client Client
	// Base is the address of the account, such as `https://api.openai.com/v1`.
	Base string
	// Dialect is in what the APIs of this kind differ.
	Dialect Dialect
}

// Dialect is in what batch APIs with files differ.
type Dialect struct {
	// Upload and Jobs are the paths of files and of batches, below the base.
	Upload, Jobs string
	// Purpose is that of an uploaded file.
	Purpose string
	// NamesFile means that the form of an upload has the file's name as a member too. OpenAI refuses unknown members.
	NamesFile bool
	// Line returns what surrounds the body of a line whose id is given, for plain requests at a path.
	Line func(id []byte, path string) (head, tail string)
	// Create returns the members of the request for a batch.
	Create func(file, path string, b provider.BatchIntent) map[string]any
	// ByFile means that a batch is found by the name of its file, since it has no metadata.
	ByFile bool
	// Pages means that lists have numbered pages, from 0, instead of cursors.
	Pages bool
}

// keyMember is the member of a batch's metadata that has its key.
const keyMember = "evalfleet_batch"

// OpenAI is the dialect of OpenAI: https://platform.openai.com/docs/api-reference/batch.
var OpenAI = Dialect{
	Upload: "/files", Jobs: "/batches", Purpose: "batch", Line: fullLine,
	Create: func(file, path string, b provider.BatchIntent) map[string]any {
		return map[string]any{"input_file_id": file, "endpoint": path, "completion_window": "24h", "metadata": map[string]string{keyMember: b.Key}}
	},
}

// Mistral is the dialect of Mistral: https://docs.mistral.ai/api/endpoint/batch/jobs.
var Mistral = Dialect{
	Upload: "/files", Jobs: "/batch/jobs", Purpose: "batch",
	Line: func(id []byte, _ string) (head, tail string) {
		return fmt.Sprintf(`{"custom_id":%s,"body":`, id), "}\n"
	},
	Create: func(file, path string, b provider.BatchIntent) map[string]any {
		return map[string]any{"input_files": []string{file}, "endpoint": path, "model": b.Model, "timeout_hours": 24, "metadata": map[string]string{keyMember: b.Key}}
	},
	Pages: true,
}

// Together is the dialect of Together AI: https://docs.together.ai/reference/batch-create.
var Together = Dialect{
	Upload: "/files/upload", Jobs: "/batches", Purpose: "batch-api", NamesFile: true, Line: fullLine, ByFile: true,
	Create: func(file, path string, _ provider.BatchIntent) map[string]any {
		return map[string]any{"input_file_id": file, "endpoint": path, "completion_window": "24h"}
	},
}

func fullLine(id []byte, path string) (head, tail string) {
	return fmt.Sprintf(`{"custom_id":%s,"method":"POST","url":%s,"body":`, id, jsonwrite.AppendText(nil, path)), "}\n"
}

// clockSkew is by how much the clocks of vendors may differ from ours.
const clockSkew = 5 * time.Minute

// path is where plain requests go, as batches name it.
func (f *Files) path(b provider.BatchIntent) string {
	return "/v1" + strings.TrimPrefix(b.URL, f.Base)
}

// Submit implements [provider.BatchAPI].
func (f *Files) Submit(ctx context.Context, b provider.BatchIntent, lines []provider.BatchLine) (string, error) {
	path := f.path(b)
	content := Lines(lines, "", func(id []byte) (before, after string) { return f.Dialect.Line(id, path) })
	var file struct {
		ID string `json:"id"`
	}
	name, form := b.Key+".jsonl", map[string]string{"purpose": f.Dialect.Purpose}
	if f.Dialect.NamesFile {
		form["file_name"] = name
	}
	err := f.Client.Upload(ctx, f.Base+f.Dialect.Upload, form, name, &file, content)
	if err == nil && file.ID == "" {
		err = f.Client.Unreadable(errors.New("the new file has no id"))
	}
	if err != nil {
		return "", err
	}
	failpoint.Hit("modelgw/after-upload")
	body, err := json.Marshal(f.Dialect.Create(file.ID, path, b))
	if err != nil {
		return "", err
	}
	var made struct {
		job
		Job job `json:"job"` // of Together
	}
	if err := f.Client.Post(ctx, f.Base+f.Dialect.Jobs, nil, &made, Document(body)); err != nil {
		return "", err
	}
	id := cmp.Or(made.ID, made.Job.ID)
	if id == "" {
		return "", f.Client.Unreadable(errors.New("the new batch has no id"))
	}
	return id, nil
}

// job is a batch as these APIs show it.
type job struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Created moment `json:"created_at"`
	// Metadata and Error have any form in the batches of others, which lists show too.
	Metadata map[string]any `json:"metadata"`
	Input    string         `json:"input_file_id"`
	Output   string         `json:"output_file_id"`
	Errors   string         `json:"error_file_id"`
	Counts   struct {
		Completed int `json:"completed"`
		Failed    int `json:"failed"`
	} `json:"request_counts"`
	Faults json.RawMessage `json:"errors"`
	Error  any             `json:"error"`
	// Mistral has these under names of its own.
	OutputFile string `json:"output_file"`
	ErrorFile  string `json:"error_file"`
	Succeeded  int    `json:"succeeded_requests"`
	FailedToo  int    `json:"failed_requests"`
}

// moment is a time in seconds since 1970, or a text.
type moment time.Time

// UnmarshalJSON reads either form; anything else is no time.
func (m *moment) UnmarshalJSON(raw []byte) error {
	if seconds, err := strconv.ParseFloat(string(raw), 64); err == nil {
		*m = moment(time.Unix(int64(seconds), 0))
		return nil
	}
	var at time.Time
	if json.Unmarshal(raw, &at) == nil {
		*m = moment(at)
	}
	return nil
}

// Find implements [provider.BatchAPI].
func (f *Files) Find(ctx context.Context, b provider.BatchIntent) (string, error) {
	inputs := map[string]bool{}
	if f.Dialect.ByFile {
		var files struct {
			Data []struct {
				ID   string `json:"id"`
				Name string `json:"filename"`
			} `json:"data"`
		}
		if err := f.Client.Get(ctx, f.Base+"/files", &files); err != nil {
			return "", err
		}
		for _, file := range files.Data {
			if file.Name == b.Key+".jsonl" && file.ID != "" {
				inputs[file.ID] = true // There are several if a crash came between a file and its batch.
			}
		}
		if len(inputs) == 0 {
			return "", nil
		}
	}
	after := ""
	for number := 0; ; number++ {
		page := struct {
			Data    []job `json:"data"`
			HasMore bool  `json:"has_more"`
		}{}
		query := "?limit=100" + after
		if f.Dialect.Pages {
			query = fmt.Sprintf("?page_size=100&page=%d&created_after=%s", number, url.QueryEscape(b.Time.Add(-clockSkew).UTC().Format(time.RFC3339)))
		}
		var all json.RawMessage
		if err := f.Client.Get(ctx, f.Base+f.Dialect.Jobs+query, &all); err != nil {
			return "", err
		}
		target := any(&page)
		if strings.HasPrefix(string(all), "[") { // of Together: the whole list
			target = &page.Data
		}
		if err := json.Unmarshal(all, target); err != nil {
			return "", f.Client.Unreadable(noDocument(err))
		}
		old := false
		for _, found := range page.Data {
			if found.Metadata[keyMember] == b.Key || inputs[found.Input] {
				return found.ID, nil
			}
			made := time.Time(found.Created)
			old = old || !made.IsZero() && made.Before(b.Time.Add(-clockSkew))
		}
		if old || !page.HasMore && !f.Dialect.Pages || len(page.Data) == 0 {
			return "", nil
		}
		after = "&after=" + url.QueryEscape(page.Data[len(page.Data)-1].ID)
	}
}

// states are the states in which a batch has ended, in lower case, with the reason why a request has no result.
var states = map[string]string{
	"completed": "", "success": "",
	"failed":           "the batch failed",
	"expired":          "the batch has expired",
	"timeout_exceeded": "the batch has expired",
	"cancelled":        "the batch was cancelled",
}

// Status implements [provider.BatchAPI].
func (f *Files) Status(ctx context.Context, id string) (provider.BatchStatus, error) {
	var j job
	if err := f.Client.Get(ctx, f.Base+f.Dialect.Jobs+"/"+url.PathEscape(id), &j); err != nil {
		return provider.BatchStatus{}, err
	}
	missing, ended := states[strings.ToLower(j.Status)]
	if missing != "" {
		missing = Join(missing, j.faults())
	}
	s := provider.BatchStatus{ID: id, Ended: ended, Completed: j.Counts.Completed + j.Succeeded, Failed: j.Counts.Failed + j.FailedToo, Missing: missing}
	for _, file := range []string{j.Output, j.Errors, j.OutputFile, j.ErrorFile} {
		if file != "" {
			s.Sources = append(s.Sources, file)
		}
	}
	return s, nil
}

// mostFaults bounds the faults of a batch that the errors of its requests list.
const mostFaults = 3

// faults are the reasons of a batch that was refused as a whole.
func (j job) faults() string {
	var found struct {
		Data []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Line    int    `json:"line"`
		} `json:"data"`
	}
	_ = json.Unmarshal(j.Faults, &found)
	words := []string{}
	for _, fault := range found.Data[:min(len(found.Data), mostFaults)] {
		text := Join(fault.Code, fault.Message)
		if fault.Line > 0 {
			text = fmt.Sprintf("line %d: %s", fault.Line, text)
		}
		words = append(words, text)
	}
	if text, ok := j.Error.(string); ok && text != "" {
		words = append(words, text)
	}
	return strings.Join(words, "; ")
}

// Results implements [provider.BatchAPI].
func (f *Files) Results(ctx context.Context, s provider.BatchStatus, each func(provider.BatchResult) error) error {
	for _, file := range s.Sources {
		if err := f.Client.ReadResults(ctx, f.Base+"/files/"+url.PathEscape(file)+"/content", resultOf, each); err != nil {
			return err
		}
	}
	return nil
}

// resultOf reads a line of results; false if it is none.
func resultOf(line []byte) (provider.BatchResult, bool) {
	var read struct {
		ID       string `json:"custom_id"`
		Response *struct {
			Status int             `json:"status_code"`
			Body   json.RawMessage `json:"body"`
		} `json:"response"`
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(line, &read) != nil || read.ID == "" {
		return provider.BatchResult{}, false
	}
	if read.Response != nil && len(read.Response.Body) > 0 {
		return provider.BatchResult{ID: read.ID, Status: cmp.Or(read.Response.Status, http.StatusOK), Body: read.Response.Body}, true
	}
	var fault struct {
		Code    json.RawMessage `json:"code"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(read.Error, &fault) != nil && json.Unmarshal(read.Error, &fault.Message) != nil {
		fault.Message = string(read.Error)
	}
	code := strings.Trim(string(fault.Code), `"`)
	if status, err := strconv.Atoi(code); err == nil && status >= 400 && status < 600 {
		return provider.BatchResult{ID: read.ID, Status: status, Body: []byte(`{"error":` + string(read.Error) + `}`)}, true
	}
	return provider.BatchResult{ID: read.ID, Body: []byte(Join(code, fault.Message))}, true
}

// Cancel implements [provider.BatchAPI].
func (f *Files) Cancel(ctx context.Context, id string) error {
	err := f.Client.Post(ctx, f.Base+f.Dialect.Jobs+"/"+url.PathEscape(id)+"/cancel", nil, &struct{}{}, Document([]byte("{}")))
	if Gone(err) {
		return nil
	}
	return err
}
