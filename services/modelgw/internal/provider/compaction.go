package provider

import (
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// NoCompaction is the error for a model whose server cannot compact a conversation; why completes a sentence about the
// model. With the failure of an attempt it has the record of that, if one was requested; nil is none.
func NoCompaction(model, why string, failed *Error) error {
	err := rpcerr.CapabilityUnsupported("compaction", "%s %s; let the model summarise the conversation instead", model, why)
	if failed != nil && failed.Call != nil {
		_ = err.WithDetail(Small(failed.Call))
	}
	return err
}

// NotCompacted is the failure of a compaction that the server answered with an output, such as that of a full context.
func NotCompacted(provider string, output *modelv1.ModelOutput) *Error {
	return &Error{
		Provider: provider, Status: http.StatusBadRequest,
		Message: "the conversation was not compacted (" + enum.Word(chat.StopReason(output)) + "): " + chat.Text(chat.FirstMessage(output)),
	}
}
