package compaction

import (
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/proto"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

const (
	// memoryTool is the tool in which a model keeps notes.
	memoryTool = "memory"
	// warnAt is the part of the threshold above which the model is asked to save notes.
	warnAt = 0.9

	savedToMemory = "(content saved to memory)"

	memoryWarning = `The conversation will be shortened soon. Save short notes with the tool memory now:
- decisions and their reasons
- findings: interfaces, data, causes of errors and their fixes
- paths of important files, and what was changed in them
- next steps of the task

Do not save raw outputs of tools or whole files. Keep the notes brief.`
)

// noteArguments are the arguments of the tool memory that hold what is saved.
var noteArguments = []string{"file_text", "insert_text", "new_str"}

// withoutNotes removes from calls of the tool memory what they saved: the model can read it there.
func withoutNotes(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	messages = slices.Clone(messages)
	for i, m := range messages {
		if !slices.ContainsFunc(m.GetToolCalls(), savesNotes) {
			continue
		}
		changed := proto.CloneOf(m)
		changed.Id = ""
		for _, call := range changed.GetToolCalls() {
			if savesNotes(call) {
				call.ArgumentsJson = withoutNote(call.GetArgumentsJson())
			}
		}
		messages[i] = changed
	}
	return messages
}

func callsMemory(call *toolv1.ToolCall) bool { return call.GetFunction() == memoryTool }

func savesNotes(call *toolv1.ToolCall) bool {
	var arguments map[string]json.RawMessage
	if !callsMemory(call) || json.Unmarshal([]byte(call.GetArgumentsJson()), &arguments) != nil {
		return false
	}
	return slices.ContainsFunc(noteArguments, func(name string) bool { _, has := arguments[name]; return has })
}

// withoutNote replaces the texts in the arguments of a call that saves a note.
func withoutNote(argumentsJSON string) string {
	arguments := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(argumentsJSON), &arguments) != nil {
		return argumentsJSON
	}
	saved, _ := json.Marshal(savedToMemory)
	for _, name := range noteArguments {
		if _, has := arguments[name]; has {
			arguments[name] = saved
		}
	}
	changed, err := json.Marshal(arguments)
	if err != nil {
		return argumentsJSON
	}
	return string(changed)
}
