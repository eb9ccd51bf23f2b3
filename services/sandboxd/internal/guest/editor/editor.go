// Package editor implements the text editor that models use: it views, creates and edits text files of the sandbox,
// shows changes with line numbers, and undoes edits. It runs inside the sandbox as the user who owns the files, one
// process per request. The history of edits is in that user's temporary folder, so that it ends with the sandbox.
//
// Request: the tool's arguments, a JSON object with command, path, file_text, old_str, new_str, insert_line,
// insert_text, view_range. Answer: {"content": text}, or {"error": {"type": type, "message": text}} where the type is
// `parsing` for invalid arguments and `unknown` for a fault that the model can see and correct.
package editor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxRequest bounds a request, and maxFile a file that is edited.
const (
	maxRequest = 64 << 20
	maxFile    = 64 << 20
)

// Request is a call of the tool. Nil members were not given.
type Request struct {
	Command    string          `json:"command"`
	Path       string          `json:"path"`
	FileText   *string         `json:"file_text"`
	OldStr     *string         `json:"old_str"`
	NewStr     *string         `json:"new_str"`
	InsertLine *int            `json:"insert_line"`
	InsertText *string         `json:"insert_text"`
	ViewRange  json.RawMessage `json:"view_range"`
}

// Answer is the outcome: Content, or Error.
type Answer struct {
	Content string `json:"content"`
	Error   *Error `json:"error,omitempty"`
}

// Error is a refusal that the model sees.
type Error struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Types of refusals.
const (
	parsing = "parsing"
	unknown = "unknown"
)

func refuse(format string, args ...any) error {
	return &Error{Type: unknown, Message: fmt.Sprintf(format, args...)}
}

// Main reads one request, acts, and writes one answer. Its exit code is 0 for every answer, refusals included.
func Main(stdin io.Reader, stdout, stderr io.Writer) int {
	data, err := io.ReadAll(io.LimitReader(stdin, maxRequest+1))
	if err == nil && len(data) > maxRequest {
		err = fmt.Errorf("the request is larger than %d bytes", maxRequest)
	}
	if err != nil {
		fmt.Fprintln(stderr, "guestd: text-editor:", err)
		return 1
	}
	e := Editor{History: filepath.Join(os.TempDir(), fmt.Sprintf(".evalfleet-editor-%d", os.Geteuid()))}
	answer := e.Answer(data)
	encoder := json.NewEncoder(stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answer); err != nil {
		fmt.Fprintln(stderr, "guestd: text-editor:", err)
		return 1
	}
	return 0
}

// Editor edits files. Two processes may edit different files at once.
type Editor struct {
	// History is the folder of edits that can be taken back; it is made, for its owner alone.
	History string
}

// Answer acts on a request in its JSON form.
func (e *Editor) Answer(data []byte) Answer {
	var req Request
	if err := json.Unmarshal(data, &req); err != nil {
		return Answer{Error: &Error{parsing, "the arguments cannot be read: " + err.Error()}}
	}
	content, err := e.act(req)
	if err == nil {
		return Answer{Content: content}
	}
	if refusal, ok := errors.AsType[*Error](err); ok {
		return Answer{Error: refusal}
	}
	return Answer{Error: &Error{unknown, err.Error()}}
}

// act checks what the command needs, then the path, then acts.
func (e *Editor) act(req Request) (string, error) {
	act, known := map[string]func(string, Request) (string, error){
		"view": e.view, "create": e.create, "str_replace": e.replace, "insert": e.insert, "undo_edit": e.undo,
	}[req.Command]
	if !known {
		return "", &Error{parsing, fmt.Sprintf("unknown command %q: use view, create, str_replace, insert or undo_edit", req.Command)}
	}
	if missing := req.missing(); missing != "" {
		return "", &Error{parsing, fmt.Sprintf("the parameter %s.%s is required", req.Command, missing)}
	}
	path, err := resolve(req.Path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	switch {
	case req.Command == "create":
		if err == nil {
			return "", refuse("%s exists already; the command create does not overwrite", path)
		}
	case errors.Is(err, os.ErrNotExist):
		return "", refuse("%s does not exist; give the path of something that does", path)
	case err != nil:
		return "", failed("read", path, err)
	case info.IsDir() && req.Command != "view":
		return "", refuse("%s is a directory; only the command view can be used on it", path)
	}
	return act(path, req)
}

// missing names a parameter that the command needs and the request lacks.
func (r *Request) missing() string {
	switch {
	case r.Command == "create" && r.FileText == nil:
		return "file_text"
	case r.Command == "str_replace" && r.OldStr == nil:
		return "old_str"
	case r.Command == "insert" && r.InsertLine == nil:
		return "insert_line"
	case r.Command == "insert" && r.NewStr == nil && r.InsertText == nil:
		return "new_str"
	}
	return ""
}
