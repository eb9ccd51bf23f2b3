// Package toolcall holds the rules on which the service that plans the calls of an assistant message and the one that
// executes them must agree: which calls run in parallel, which are skipped after a failure, and which entries of a
// run's store a tool may use. It executes nothing and keeps no state.
package toolcall

import (
	"encoding/json"
	"slices"
	"strings"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// StageEnd returns the end of the stage that begins with a call, as an index past its last call. Consecutive calls that
// may run in parallel are one stage, every other call is a stage of its own.
func StageEnd(begin, calls int, parallel func(call int) bool) int {
	end := begin + 1
	if parallel(begin) {
		for end < calls && parallel(end) {
			end++
		}
	}
	return end
}

// FailFast names the functions whose calls run sequentially; after one of them failed, the later ones of the same
// function are skipped.
type FailFast []string

// FailFastOf reads the setting of an assistant message: the member `tool_calls_fail_fast` of its metadata. Metadata of
// another form have no setting.
func FailFastOf(m *modelv1.ChatMessage) FailFast {
	var metadata struct {
		Functions FailFast `json:"tool_calls_fail_fast"`
	}
	if m.GetMetadataJson() == "" || json.Unmarshal([]byte(m.GetMetadataJson()), &metadata) != nil {
		return nil
	}
	return metadata.Functions
}

// Parallel reports whether a call may run beside its neighbours, where its tool allows that.
func (f FailFast) Parallel(function string, allowed bool) bool {
	return allowed && !slices.Contains(f, function)
}

// Skips reports whether a call is skipped; failed reports whether an earlier call of a function failed.
func (f FailFast) Skips(function string, failed func(function string) bool) bool {
	return slices.Contains(f, function) && failed(function)
}

// Skipped is the error of a call that is skipped.
func Skipped(function string) *toolv1.ToolCallError {
	return &toolv1.ToolCallError{
		Type:    toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED,
		Message: "not executed, because an earlier call of " + function + " in the same message failed",
	}
}

// SkippedNote is the note of a call that is skipped, for the transcript.
func SkippedNote(function string) string {
	return function + " was not executed: an earlier call of it failed"
}

// Interrupted is the error of a call whose turn an operator cut.
func Interrupted() *toolv1.ToolCallError {
	return &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, Message: "the call was cancelled by the user"}
}

// TimedOut is the error of a call that did not finish in its time. A call that an operator stopped has the same one.
func TimedOut() *toolv1.ToolCallError {
	return &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, Message: "the command did not finish before its time was up"}
}

// StoppedNote is the note of a call that an operator stopped, for the transcript.
func StoppedNote(function string) string { return function + " was stopped by an operator" }

// Covers reports whether one of the keys that a tool declares covers the key of an entry of a run's store. A declared
// key that ends in `*` covers every key that begins with the rest of it.
func Covers(declared []string, key string) bool {
	return slices.ContainsFunc(declared, func(declared string) bool {
		prefix, open := strings.CutSuffix(declared, "*")
		return key == declared || open && strings.HasPrefix(key, prefix)
	})
}
