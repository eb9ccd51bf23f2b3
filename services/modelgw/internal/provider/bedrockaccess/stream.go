package bedrockaccess

import (
	"errors"

	"github.com/evalfleet/evalfleet/pkg/dialect"
)

// A stream needs a right of its own. An account without it is asked for the whole answer in the same attempt.

// denied is the type of AWS's error for an account that lacks a right.
const denied = "AccessDeniedException"

// LacksRight reports whether an attempt failed because the account lacks a right.
func LacksRight(err error) bool {
	said, ok := errors.AsType[*dialect.Error](err)
	return ok && said.Type == denied
}

// NotStreamed is the warning of an answer that was not streamed since the account lacks the right.
func NotStreamed(model string) string {
	return model + " may not be streamed with the account's rights; grant bedrock:InvokeModelWithResponseStream, or set the model argument streaming to false"
}
