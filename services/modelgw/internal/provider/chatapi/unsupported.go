package chatapi

import (
	"errors"

	"github.com/evalfleet/evalfleet/pkg/chat/encode"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// unsupported says that the format cannot say what the request holds.
func unsupported(name string, err error) error {
	what := err.Error()
	if u, ok := errors.AsType[*openaichat.UnsupportedError](err); ok {
		what = u.What
	}
	return rpcerr.CapabilityUnsupported(what, "%s: %w", name, err)
}

// Text returns a text as JSON, for members of a request.
func Text(text string) string { return string(encode.AppendText(nil, text)) }

// Ignored and Dropped are options that chat completions do not have, as in [provider.Capabilities]; cache_prompt some
// models have.
var (
	Ignored = []string{"top_k", "verbosity"}
	Dropped = []string{
		"best_of", "internal_tools", "fallback_models", "effort", "reasoning_mode", "reasoning_tokens", "reasoning_summary", "cache_prompt",
	}
	// ExtraBodyDropped are members of extra_body that are not sent: metadata is about the call, and not for the server.
	ExtraBodyDropped = []string{"metadata"}
)
